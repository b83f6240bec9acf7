"""Tells news from what is already known, where events come twice or in the wrong order."""

from collections import OrderedDict

from agent.core.fields import Fields

_REMEMBERED = 4096


class NewestVersions:
    """The newest resource version seen of each object, deleted ones included, by UID.

    Versions are compared as numbers, which Kubernetes guarantees for its own resources (KEP-5504); one that
    is no number always counts as news.
    """

    def __init__(self) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()

    def is_news(self, uid: str, metadata: Fields) -> bool:
        """Whether this version of the object is newer than any seen before; if so it is the newest now."""
        text = metadata.optional_text("resourceVersion") or ""
        if not (text.isascii() and text.isdecimal()):
            return True
        version = int(text)
        if version <= self._newest.get(uid, -1):
            return False
        self._newest[uid] = version
        self._newest.move_to_end(uid)
        while len(self._newest) > _REMEMBERED:
            self._newest.popitem(last=False)
        return True

    def forget(self) -> None:
        """Trust what comes next: after a list, or a restored etcd, versions may be lower."""
        self._newest.clear()
