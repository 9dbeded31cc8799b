"""The training step: operations of a real framework's step, for any machine."""

from sim.workload.step.generate import generate

__all__ = ["generate"]
