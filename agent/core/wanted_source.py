"""A source address that has to be looked up."""

from dataclasses import dataclass

from agent.core.records import Address


@dataclass(frozen=True, slots=True)
class WantedSource:
    """An address that nobody on this node knows; whoever has it now had it at `seen_ns` if it lived then."""

    address: Address
    seen_ns: int
