"""What tools say about a machine: its layout (hwloc, nvidia-smi) and what was measured on it. Returns plain objects."""

from sim.interchange.machines.figures import Figure, Layout
from sim.interchange.machines.readers import READERS, read_figures, read_layout

__all__ = ["READERS", "Figure", "Layout", "read_figures", "read_layout"]
