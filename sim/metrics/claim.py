"""The verdict on a stated claim: reproduced, conditional, or not reproduced. Nothing is tuned to make a claim true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: a claim is reproduced within this relative distance of its number (or inside its stated range)
TOLERANCE = 0.15


def verdict_of(claim: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """``{"id", "stated", "simulated", "verdict"}`` for a claim about one metric of a point.

    `claim` has `metric` (a key of the point, dotted for nested ones) and `value` or `range`; `assumptions` make a
    reproduced claim conditional. A claim without a metric is judged by whether the scenario fits; a metric that the
    point lacks (nothing ran) is not reproduced.
    """
    simulated = lookup(point, str(claim.get("metric", "fits")))
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
