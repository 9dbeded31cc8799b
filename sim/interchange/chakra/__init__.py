"""MLCommons Chakra execution traces: read into a step, written from one."""

from sim.interchange.chakra.nodes import looks_like, read_trace, write_trace
from sim.interchange.chakra.read import step_from

__all__ = ["looks_like", "read_trace", "step_from", "write_trace"]
