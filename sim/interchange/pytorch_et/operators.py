"""Execution traces as the observer writes them: operators with tensors, but without a single duration.

Leaf operators on GPU tensors become kernels timed by the kernel law; the program's order is one compute stream; a
collective waits for the last writers of its storages and whoever reads what it wrote waits for it.
"""

from __future__ import annotations

import re
from collections import Counter

from sim.interchange import kernel_class
from sim.interchange.kernel_class import Shapes
from sim.interchange.kineto.events import clean_name
from sim.interchange.pytorch_et.nodes import Document, Node, Tensor, shapes_of, tensors_of, values_of
from sim.interchange.pytorch_et.walk import Walk
from sim.records import Kernel, Kind, StepOperation

#: operators that move no data: views and bookkeeping
_FREE = re.compile(
    r"::(?:view|_?unsafe_view|t|transpose|permute|as_strided|detach_?|alias|expand|slice|select|narrow|squeeze|unsqueeze|"
    r"reshape|flatten|split|chunk|unbind|empty\w*|new_empty\w*|resize_\w*|result_type|_local_scalar_dense|item|is_\w+|size|stride|"
    r"set_|record_stream|lift_fresh|_has_compatible_shallow_copy_type|can_cast|numpy_T|contiguous|to|_to_copy)$"
)


class Operators(Walk):
    """Walks the nodes in the order of their ids, which is the program's."""

    def __init__(self, document: Document, num_ranks: int) -> None:
        super().__init__(document, num_ranks)
        self.parents = {node.above for node in self.nodes if not node.name.startswith("nccl:")}
        self.pending: list[StepOperation] = []  # collectives that the next kernel waits for
        self.waiting = False

    def operations(self) -> list[StepOperation]:
        """All operations of the rank."""
        for node in self.nodes:
            inputs, shapes = tensors_of(node.inputs), shapes_of(node)
            outputs = tensors_of(node.outputs)
            if node.name.startswith(("nccl:", "hccl:")):
                self._collective(node, inputs, outputs)
            elif node.name == "record_param_comms":
                self.waiting |= any(value == "wait" for value in values_of(node.inputs) if isinstance(value, str))
            elif node.id not in self.parents and "::" in node.name and not is_free(node.name):
                self._leaf(node, inputs, outputs, shapes)
        return self.done

    def _collective(self, node: Node, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        held = [op for op in self.writers(inputs) if op.kind is not Kind.COLLECTIVE] or self._latest_kernel()
        operation = self.add_collective(node, held, sum(tensor.size_bytes for tensor in inputs))
        self.pending.append(operation)
        for tensor in (*inputs, *outputs):
            self.writer[tensor.storage] = operation

    def _latest_kernel(self) -> list[StepOperation]:
        return [self.last["compute"]] if "compute" in self.last else []

    def _leaf(self, node: Node, inputs: list[Tensor], outputs: list[Tensor], shapes: Shapes) -> None:
        tensors = (*inputs, *outputs)
        if not any(tensor.is_on_gpu for tensor in tensors):
            self.counts["operators on CPU tensors (left out: they hold no times)"] += bool(tensors)
            return
        after = self.writers(inputs)
        if self.waiting:
            after += self.pending
            self.pending, self.waiting = [], False
        if "copy_" in node.name and len(inputs) > 1 and not all(tensor.is_on_gpu for tensor in tensors):
            is_load = not inputs[1].is_on_gpu
            source, target = ("dram", "gpu") if is_load else ("gpu", "dram")
            operation = self.add(
                "h2d" if is_load else "d2h", Kind.TRANSFER, node, after + self._latest_kernel(), category="transfer",
                source=source, target=target, size_bytes=inputs[0].size_bytes,
            )  # fmt: skip
        else:
            operation = self.add("compute", Kind.COMPUTE, node, after,
                                 kernels=(kernel_of(node, inputs, outputs, shapes, self.counts),))  # fmt: skip
        for tensor in outputs or inputs[:1]:
            self.writer[tensor.storage] = operation


def is_free(name: str) -> bool:
    """Whether an operator of that name moves no data."""
    return bool(_FREE.search(name))


def kernel_of(node: Node, inputs: list[Tensor], outputs: list[Tensor], shapes: Shapes, counts: Counter[str]) -> Kernel:
    """What an operator computes, reads and writes."""
    flops = kernel_class.amount_of(node.name, shapes).flops or kernel_class.positive(node.attribute("flops"))
    read = sum(tensor.size_bytes for tensor in inputs)
    written = sum(tensor.size_bytes for tensor in outputs) or (inputs[0].size_bytes if inputs else 0.0)
    counts["kernels with FLOPs from shapes" if flops else "kernels with bytes only"] += 1
    m, n, k = kernel_class.product_of(node.name, shapes)
    return Kernel(
        kind="gemm" if flops else "elementwise", flops=flops, read_bytes=read, write_bytes=written, m=m, n=n, k=k,
        dtype=kernel_class.dtype_of(str(node.attribute("dtype") or ""), shapes.types), name=clean_name(node.name),
    )  # fmt: skip
