"""The error band of a prediction, from the public validation of the model families that it used."""

from __future__ import annotations

from collections.abc import Mapping

from sim.placement.plan import Placement
from sim.records import Struct
from sim.workload.inference import Inference
from sim.workload.training import Training

#: until a family is validated: what two independent studies found on runs that they had not fitted
_KNOWN_FRAMEWORK, _UNKNOWN = 0.10, 0.20
#: fewer rows than this say little about a new run
_MIN_ROWS = 10


class FamilyError(Struct, frozen=True, kw_only=True):
    """Error of one validation family: rows, and the relative error that 90 % of them stay below."""

    n: int
    p90: float
    is_left_out: bool = False  # predicted with constants that were fitted without the family


class Band(Struct, frozen=True, kw_only=True):
    """A step time t is expected between t x (1 - low) and t x (1 + high); `basis` says where that comes from."""

    low: float = _UNKNOWN
    high: float = _UNKNOWN
    basis: str = "assumed: +-20 % for what no measurement covers"

    def over(self, value_s: float, fast_s: float, slow_s: float, why: str) -> Band:
        """The band around all of `fast_s` to `slow_s` where `value_s` is what was predicted."""
        low, high = 1.0 - (1.0 - self.low) * fast_s / value_s, (1.0 + self.high) * slow_s / value_s - 1.0
        return Band(low=low, high=high, basis=f"{self.basis}; {why}")

    def around(self, value_s: float) -> dict[str, float | str]:
        """The band in seconds, as `--json` shows it."""
        return {"low_s": value_s * (1.0 - self.low), "high_s": value_s * (1.0 + self.high), "basis": self.basis}


def family_of(workload: object, placement: Placement) -> str:
    """The validation family that is nearest to a workload; "" when none is (a replayed trace)."""
    if isinstance(workload, Inference):
        return "inference"
    if not isinstance(workload, Training):
        return ""
    is_offloaded = workload.optimizer.offload or any(set(entry.shares) != {"gpu"} for entry in placement.entries)
    return "training_offload" if is_offloaded else "training_moe" if workload.model.experts else "training_no_offload"


def band_of(workload: object, placement: Placement, errors: Mapping[str, FamilyError]) -> Band:
    """The band of a job: the p90 error of its validation family, or an assumed one where that has too few rows.

    A framework without a profile of its own widens the band to at least +-20 %. The lower edge is that of a prediction
    which is too high by the same factor, so it never reaches zero.
    """
    family = family_of(workload, placement)
    known = isinstance(workload, Training) and workload.framework != "auto"
    error = errors.get(family)
    if error is None or error.n < _MIN_ROWS or not 0.0 < error.p90 < 5.0:
        if known and family == "training_no_offload":
            return Band(low=_KNOWN_FRAMEWORK, high=_KNOWN_FRAMEWORK, basis="assumed: +-10 % for a framework with a profile")
        return Band()
    share = error.p90 if known or family != "training_no_offload" else max(error.p90, _UNKNOWN)
    how = "predicted without them, " if error.is_left_out else ""
    basis = f"validation: 90 % of {error.n} measurements of {family.replace('_', ' ')}, {how}within {100 * error.p90:.2g} %"
    return Band(low=1.0 - 1.0 / (1.0 + share), high=share, basis=basis)
