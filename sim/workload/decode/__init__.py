"""Inference: the operations of a prefill and of sampled decode tokens, for any machine."""

from sim.workload.decode.faults import faults
from sim.workload.decode.generate import generate

__all__ = ["faults", "generate"]
