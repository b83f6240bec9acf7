"""Answers to list requests: consistent snapshots, exact revisions, pages."""

import base64
import binascii
import json
from dataclasses import dataclass

from agent.lab.controlplane.resources import JsonObject, Resource
from agent.lab.controlplane.selectors import Selector
from agent.lab.controlplane.statuses import bad_request, expired, timed_out
from agent.lab.controlplane.store import ExpiredError, FutureRevisionError, Key, Store


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The parameters of a list request that choose revision and page; `limit` 0 means no limit."""

    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""


def list_page(store: Store, resource: Resource, selector: Selector, options: ListOptions) -> JsonObject:
    """One page of a collection as a List object. Raises RequestRefused (400, 410, 504)."""
    wanted, start = _start(options, store.revision)
    try:
        revision, found = store.at(resource, wanted)
    except ExpiredError as error:
        raise expired(_EXPIRED_TOKEN if start else f"The resourceVersion for the list is {error}") from error
    except FutureRevisionError as error:
        raise timed_out(str(error)) from error
    matching = [(key, item) for key, item in found if selector.matches(item) and (not start or key > start)]
    metadata: JsonObject = {"resourceVersion": str(revision)}
    if 0 < options.limit < len(matching):
        metadata["remainingItemCount"] = len(matching) - options.limit
        matching = matching[: options.limit]
        metadata["continue"] = _token(revision, matching[-1][0])
    return {
        "kind": resource.kind + "List",
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": [item for _, item in matching],
    }


_EXPIRED_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. Start again."
)


def _start(options: ListOptions, current: int) -> tuple[int | None, Key | None]:
    """The revision to show and the key after which the page begins."""
    if options.continue_token:
        return _read_token(options.continue_token)
    return _exact_revision(options, current), None


def _exact_revision(options: ListOptions, current: int) -> int | None:
    """The revision that the list must show, None for the newest."""
    if options.resource_version in ("", "0"):
        return None
    try:
        wanted = int(options.resource_version)
    except ValueError:
        raise bad_request(f"invalid resource version {options.resource_version!r}") from None
    if options.resource_version_match == "Exact" or wanted > current:
        return wanted
    return None


def _token(revision: int, last: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([revision, *last]).encode()).decode()


def _read_token(token: str) -> tuple[int, Key]:
    try:
        revision, namespace, name = json.loads(base64.urlsafe_b64decode(token))
        return int(revision), (str(namespace), str(name))
    except (binascii.Error, ValueError, TypeError):
        raise bad_request("continue key is not valid") from None
