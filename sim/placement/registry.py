"""All placement policies by name, and the options that each of them takes."""

from __future__ import annotations

from collections.abc import Mapping

from sim.errors import Fault, InputError
from sim.placement.access_counters import NAME, AccessCounter
from sim.placement.hot_cold import HotCold
from sim.placement.policies import BandwidthProportional, FastestFirst, FirstTouch, LatencyCriticalFirst, Policy

POLICIES: dict[str, Policy] = {
    "fastest_first": FastestFirst(),
    "first_touch": FirstTouch(),
    "latency_critical_first": LatencyCriticalFirst(),
    "bandwidth_proportional": BandwidthProportional(),
    "hot_cold": HotCold(),
}
#: options of every policy beside `tiers`: as written -> (dimension of its unit, name in SI, least value)
OPTIONS: Mapping[str, Mapping[str, tuple[str, str, float]]] = {
    "hot_cold": {
        "scan_period": ("time", "scan_period_s", 1e-3),
        "promotion_bandwidth": ("bandwidth", "promotion_bandwidth_bytes_per_s", 1.0),
        "hysteresis": ("number", "hysteresis", 1.0),
        "free_share": ("fraction", "free_share", 0.0),
        "steps": ("number", "steps", 1.0),
    }
}
#: what hardware and driver do by themselves; nobody asks for it by name
_IMPLIED: dict[str, Policy] = {NAME: AccessCounter()}
#: policies that move pages after they were placed
MOVING = ("hot_cold", NAME)
#: forms that name their shares themselves
EXPLICIT = ("interleave", "weighted_interleave", "by_layer")


def policy(name: str) -> Policy:
    """The policy of that name; InputError listing the names otherwise."""
    if name in POLICIES or name in _IMPLIED:
        return (POLICIES | _IMPLIED)[name]
    known = ", ".join((*EXPLICIT, *POLICIES))
    raise InputError(Fault(what=f"unknown placement policy {name!r}", remedy=f"use one of {known}", path="placement.policy"))
