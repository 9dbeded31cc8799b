"""What the binding resource would have to be to stop binding: first order, from the seconds that it owns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sim.metrics.owner_names import ARRIVAL, OVERHEAD
from sim.records import Program


@dataclass(frozen=True, slots=True)
class Relief:
    """The resource with most seconds of the critical path, and the speed at which the next one has as many."""

    resource: str
    factor: float  # >= 1; infinite when nothing else owns anything
    bandwidth_bytes_per_s: float  # needed; 0 when the resource is no channel of bytes
    then: str  # the resource that binds then


def relief_of(owners_s: Mapping[str, float], program: Program) -> Relief | None:
    """Relief of the first owner; None when no resource owns a second.

    A channel's seconds fall as its bandwidth rises, all else equal; what it hides behind it may appear instead, so the
    answer is a lower bound. Overhead is no resource: it neither binds nor takes over.
    """
    owned = sorted(
        ((seconds, name) for name, seconds in owners_s.items() if name not in (ARRIVAL, OVERHEAD) and seconds > 0), reverse=True
    )
    if not owned:
        return None
    (first_s, name), (next_s, then) = owned[0], owned[1] if len(owned) > 1 else (0.0, "")
    factor = first_s / next_s if next_s else float("inf")
    return Relief(resource=name, factor=factor, bandwidth_bytes_per_s=needed_bandwidth(name, factor, program), then=then)


def saving_s(owned_s: float, factor: float) -> float:
    """Seconds of a step that a resource `factor` times as fast saves at most: what it hides may appear."""
    return owned_s * (1.0 - 1.0 / factor)


def factor_to_share(owned_s: float, step_s: float, share: float) -> float:
    """How many times as fast a resource must be to own at most `share` of the step; 1 where it owns no more now.

    The rest of the step is taken to stay: owned_s / factor = share (rest + owned_s / factor).
    """
    rest_s = step_s - owned_s
    if owned_s <= share * step_s:
        return 1.0
    return owned_s * (1.0 - share) / (share * rest_s) if rest_s > 0.0 else float("inf")


def needed_bandwidth(resource: str, factor: float, program: Program) -> float:
    """Bytes/s of a channel `factor` times as fast; 0 when the resource is no channel of bytes."""
    channel = next((item for item in program.channels if item.name == resource and item.unit == "bytes"), None)
    return channel.bandwidth_per_s * factor if channel else 0.0
