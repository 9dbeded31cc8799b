"""The error band of a prediction, from the public validation of the model families that it used."""

from __future__ import annotations

from sim.records import Struct
from sim.workload.inference import Inference
from sim.workload.training import Training

#: until a family is validated: what two independent studies found on runs that they had not fitted
_KNOWN_FRAMEWORK, _UNKNOWN = 0.10, 0.20


class Band(Struct, frozen=True, kw_only=True):
    """A step time t is expected between t x (1 - low) and t x (1 + high); `basis` says where that comes from."""

    low: float = _UNKNOWN
    high: float = _UNKNOWN
    basis: str = "assumed: +-20 % for what no measurement covers"

    def around(self, value_s: float) -> dict[str, float | str]:
        """The band in seconds, as `--json` shows it."""
        return {"low_s": value_s * (1.0 - self.low), "high_s": value_s * (1.0 + self.high), "basis": self.basis}


def band_of(workload: object) -> Band:
    """The band of a workload: +-10 % for a known framework without offload, +-20 % otherwise."""
    if isinstance(workload, Training) and workload.framework != "auto" and not workload.optimizer.offload:
        return Band(low=_KNOWN_FRAMEWORK, high=_KNOWN_FRAMEWORK, basis="assumed: +-10 % for a framework with a profile")
    if isinstance(workload, Inference):
        return Band(basis="assumed: +-20 % for inference")
    return Band()
