"""The verdict on a stated claim: reproduced, conditional, or not reproduced. Nothing is tuned to make a claim true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.units import format_bandwidth, format_bytes, format_seconds

#: a claim is reproduced within this relative distance of its number (or inside its stated range)
TOLERANCE = 0.15


def verdict_of(claim: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """``{"id", "stated", "simulated", "verdict"}`` for a claim about one metric of a point.

    `claim` has `metric` (a key of the point, dotted for nested ones) and `value` or `range`; `assumptions` make a
    reproduced claim conditional. A claim without a metric is judged by whether the scenario fits; a metric that the
    point lacks (nothing ran) is not reproduced.
    """
    return _judged(claim, lookup(point, _metric(claim)))


def verdict_of_points(claim: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """As :func:`verdict_of`, for a sweep: about the point `at` (default the first), or its ratio to the point `against`.

    `at` and `against` are parameters of the sweep (a point matches if it has all of them). `holds` lists the
    parameters of the points for which the claim holds, each against its own `against` (the parameters that it does not
    name are the point's): when a loose claim is true.
    """
    found = _simulated(claim, points, dict(claim.get("at", {})))
    result = _judged(claim, found)
    result["holds"] = [
        dict(point["parameters"]) for point in points if _is_met(claim, _simulated(claim, points, dict(point["parameters"])))
    ]
    return result


def is_of_sweep(claim: Mapping[str, Any]) -> bool:
    """Whether the claim compares or picks points of a sweep."""
    return "at" in claim or "against" in claim


def _metric(claim: Mapping[str, Any]) -> str:
    return str(claim.get("metric", "fits"))


def _simulated(claim: Mapping[str, Any], points: Sequence[Mapping[str, Any]], at: Mapping[str, Any]) -> Any:
    point = _matching(points, at)
    value = lookup(point, _metric(claim)) if point else None
    if "against" not in claim or point is None:
        return value
    base = _matching(points, {**point["parameters"], **claim["against"]})
    below = lookup(base, _metric(claim)) if base else None
    return value / below if value is not None and below else None


def _matching(points: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((p for p in points if all(p["parameters"].get(key) == value for key, value in wanted.items())), None)


def _judged(claim: Mapping[str, Any], simulated: Any) -> dict[str, Any]:
    is_met = _is_met(claim, simulated)
    is_conditional = bool(claim.get("assumptions"))
    verdict = "not reproduced" if not is_met else "conditional" if is_conditional else "reproduced"
    result = {"id": claim.get("id"), "stated": claim.get("stated"), "simulated": simulated, "verdict": verdict}
    if claim.get("reason"):
        result["reason"] = claim["reason"]
    return result


def lookup(point: Mapping[str, Any], metric: str) -> Any:
    """The value of a dotted metric; a tier or channel name may hold dots itself. None when it is not there."""
    if metric in point:
        return point[metric]
    for key, value in point.items():
        if metric.startswith(f"{key}.") and isinstance(value, Mapping):
            return lookup(value, metric[len(key) + 1 :])
    return None


def in_words(value: object, claim: Mapping[str, Any]) -> str:
    """The simulated value of a claim as people read it: yes or no, a ratio, decimal gigabytes, seconds, or the number."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "nothing ran"}[value]
    if not isinstance(value, int | float):
        return str(value)
    metric = _metric(claim)
    if "against" in claim:
        return f"{value:.2f}x"
    if metric.endswith("_bytes") or ".by_class." in metric:
        return f"{value / 1e9:{',.0f' if value >= 1e12 else '.3g'}} GB" if value >= 1e9 else format_bytes(value)
    if metric.endswith("bytes_per_s"):
        return format_bandwidth(value)
    return format_seconds(value) if metric.endswith("_s") and not metric.endswith("per_s") else f"{value:.4g}"


def _is_met(claim: Mapping[str, Any], simulated: Any) -> bool:
    if simulated is None:
        return False
    if "range" in claim:
        low, high = claim["range"]
        return bool(low <= simulated <= high)
    if "value" not in claim:
        return bool(simulated)
    value = claim["value"]
    if isinstance(value, bool) or isinstance(simulated, bool):
        return bool(value) is bool(simulated)
    return bool(abs(simulated - value) <= float(claim.get("tolerance", TOLERANCE)) * abs(value))
