"""Number formats that a job asks for and its GPUs have no units for."""

from __future__ import annotations

from sim.laws.kernels import peak
from sim.records import Step
from sim.topology.machine import Machine


def stand_in_formats(step: Step, machine: Machine) -> tuple[str, ...]:
    """A sentence for each kind of GPU and format of a generated step's products that it computes in another one."""
    if step.origin != "generated":
        return ()
    written = {id(op.kernels): op.kernels for op in step.operations if op.kernels}
    asked = sorted({kernel.dtype for kernels in written.values() for kernel in kernels if kernel.flops})
    found: dict[str, None] = {}
    for gpu in machine.gpus():
        part = machine.part(gpu)
        for dtype in asked if part.get("compute") else ():
            taken, _ = peak(part, dtype)
            name = str(part.get("title") or gpu)
            if taken != dtype:
                text = (
                    f"{name}: no {dtype} units, its matrix products are timed in {taken}; a framework may refuse or emulate it"
                )
                found[text] = None
            elif dtype == "fp32" and (gain := peak(part, "tf32")[1] / peak(part, dtype)[1]) > 1:
                text = f"{name}: fp32 products without TF32, PyTorch's default; precision: tf32 has {gain:.2g} times the peak"
                found[text] = None
    return tuple(found)
