"""Field and label selectors of list and watch requests."""

from dataclasses import dataclass

from agent.lab.controlplane.resources import JsonObject, Resource


class SelectorError(ValueError):
    """Unsupported field label or malformed requirement; the text is for the client."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """`key` must (or, if `negated`, must not) have `value`; `value` None asks for a label's existence."""

    key: str
    value: str | None
    negated: bool

    def holds(self, found: str | None) -> bool:
        """Whether the requirement holds for the value found at `key` (None: there is none)."""
        matches = found is not None if self.value is None else found == self.value
        return matches is not self.negated


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements of a request; an empty one matches every object."""

    fields: tuple[Requirement, ...] = ()
    labels: tuple[Requirement, ...] = ()
    namespace: str | None = None

    def matches(self, item: JsonObject | None) -> bool:
        """Whether the object is there and meets every requirement."""
        if item is None:
            return False
        if self.namespace is not None and item["metadata"].get("namespace") != self.namespace:
            return False
        labels = item["metadata"].get("labels", {})
        return all(need.holds(_field(item, need.key)) for need in self.fields) and all(
            need.holds(labels.get(need.key)) for need in self.labels
        )


def selector(resource: Resource, namespace: str | None, fields: str, labels: str) -> Selector:
    """The selector of a request's fieldSelector and labelSelector parameters. Raises SelectorError."""
    field_needs = tuple(_requirement(part, bare_key=False) for part in fields.split(",") if part)
    for need in field_needs:
        if need.key not in resource.field_labels | {"metadata.name", "metadata.namespace"}:
            raise SelectorError(f"field label not supported: {need.key}")
    label_needs = tuple(_requirement(part, bare_key=True) for part in labels.split(",") if part)
    return Selector(field_needs, label_needs, namespace)


def _requirement(text: str, *, bare_key: bool) -> Requirement:
    for operator, negated in (("!=", True), ("==", False), ("=", False)):
        key, found, value = text.partition(operator)
        if found:
            return Requirement(key.strip(), value.strip(), negated)
    if bare_key and not any(character in text for character in " ()"):
        return Requirement(text.removeprefix("!"), None, text.startswith("!"))
    raise SelectorError(f"unable to parse requirement: {text!r}")


def _field(item: JsonObject, path: str) -> str:
    found: object = item
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    return str(found).lower() if isinstance(found, bool) else str(found)
