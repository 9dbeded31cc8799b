"""PyTorch execution traces (ExecutionTraceObserver JSON, also joined with a profile): read and written."""

from sim.interchange.pytorch_et.nodes import looks_like
from sim.interchange.pytorch_et.read import step_from

__all__ = ["looks_like", "step_from"]
