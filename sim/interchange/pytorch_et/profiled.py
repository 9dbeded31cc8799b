"""Execution traces joined with a profile (Chakra's linker, `tiersim export pytorch-et`): nodes of GPU work with times.

Nodes with `cat` are GPU work and run in the order of their start, each on its stream; their amounts come from the leaf
operators that launched them. Operators of the CPU keep the time that they took themselves. Copies and collectives are
timed anew by their bytes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from sim.interchange import kernel_class
from sim.interchange.copy_names import ends_of
from sim.interchange.kernel_class import Shapes, is_communication
from sim.interchange.kineto.events import clean_name
from sim.interchange.pytorch_et.nodes import Document, Node, Tensor, shapes_of, tensors_of
from sim.interchange.pytorch_et.operators import is_free, kernel_of
from sim.interchange.pytorch_et.walk import Walk
from sim.records import Kernel, Kind, StepOperation, TensorClass

_ROLE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_MESSAGE = re.compile(r"send(?!recv)|recv", re.I)
_CLASSES = {item.value: item for item in TensorClass}


def is_profiled(document: Document) -> bool:
    """Whether the nodes hold GPU work with times."""
    return any(node.cat is not None and node.ts is not None for node in document.nodes)


class Profiled(Walk):
    """Walks the nodes that have a time, by their start."""

    def __init__(self, document: Document, num_ranks: int) -> None:
        super().__init__(document, num_ranks)
        self.below: dict[int, list[Node]] = defaultdict(list)
        for node in self.nodes:
            if node.above != node.id:
                self.below[node.above].append(node)
        self.streams: dict[tuple[str, Any], str] = {}
        self.sends: list[StepOperation] = []
        self.num_received = 0
        self.launched: dict[int, StepOperation] = {}  # operator of the CPU -> its time
        timed = [node for node in self.nodes if node.ts is not None and node.seconds > 0]
        self.timed = sorted(timed, key=lambda node: (node.ts or 0.0, node.id))
        starts = [node.ts or 0.0 for node in self.timed]
        ends = [(node.ts or 0.0) + 1e6 * node.seconds for node in self.timed]
        self.recorded_s = (max(ends) - min(starts)) * 1e-6 if starts else 0.0

    def operations(self) -> list[StepOperation]:
        """All operations of the rank."""
        negative = sum((node.exclusive_dur or 0.0) < 0 for node in self.nodes)
        if negative:
            self.counts["nodes with a negative duration (left out)"] = negative
        for node in self.timed:
            inputs, outputs = tensors_of(node.inputs), tensors_of(node.outputs)
            operation = self._operation(node, inputs, self._after(node, inputs))
            is_launch = node.cat is None and any(other.cat is not None for other in self.below[node.id])
            for tensor in () if is_launch else outputs or inputs[:1]:
                self.writer[tensor.storage] = operation
        return self.done

    def _after(self, node: Node, inputs: list[Tensor]) -> list[StepOperation]:
        """What wrote the inputs, and the operator of the CPU that launched it."""
        launch = self.launched.get(node.above) if node.cat is not None else None
        return self.writers(inputs) + ([launch] if launch is not None else [])

    def _operation(self, node: Node, inputs: list[Tensor], after: list[StepOperation]) -> StepOperation:
        ends = node.attribute("source"), node.attribute("target")
        if all(isinstance(end, str) and end for end in ends):
            return self._copy(node, inputs, after, str(ends[0]), str(ends[1]))
        if node.cat is None:
            return self._on_cpu(node, after)
        if is_communication(node.name):
            return self._communication(node, inputs, after)
        if "memcpy" in node.cat and (ways := ends_of(node.name)) in (("dram", "gpu"), ("gpu", "dram")):
            return self._copy(node, inputs, after, *ways)
        role = self._role(node, "compute")
        return self.add(role, Kind.COMPUTE, node, after, kernels=(self._kernel(node),))

    def _role(self, node: Node, role: str) -> str:
        """Stream of a node: the name that our own export gives, else the role, numbered by stream or thread."""
        named = node.attribute("stream_name")
        if isinstance(named, str) and _ROLE.fullmatch(named):
            return named
        key = (role, node.attribute("tid") if node.cat is None else node.stream)
        number = sum(known == role for known, _ in self.streams)
        return self.streams.setdefault(key, f"{role}{number}" if number else role)

    def _copy(self, node: Node, inputs: list[Tensor], after: list[StepOperation], source: str, target: str) -> StepOperation:
        is_load = target == "gpu" or node.attribute("is_load") is True
        held = _CLASSES.get(str(node.attribute("tensor_class")))
        role = self._role(node, "h2d" if is_load else "d2h")
        size = max((tensor.size_bytes for tensor in inputs), default=0.0)
        return self.add(
            role, Kind.TRANSFER, node, after, category="transfer", source=source, target=target, size_bytes=size,
            is_pinned="Pageable" not in node.name, tensor_class=held,
        )  # fmt: skip

    def _communication(self, node: Node, inputs: list[Tensor], after: list[StepOperation]) -> StepOperation:
        if not _MESSAGE.search(node.name):
            size = sum(tensor.size_bytes for tensor in inputs)
            return self.add_collective(node, after, size, self._role(node, "collective"))
        if "recv" in node.name.lower():
            self.counts["receives matched with this rank's own send"] += 1
            own = self.sends[min(self.num_received, len(self.sends) - 1) :][:1]
            self.num_received += 1
            return self.add("p2p_in", Kind.MARKER, node, after + own, category="collective")
        self.counts["messages sent around the ranks as a ring (partners are not modelled one by one)"] += 1
        sent = self.add(
            "p2p", Kind.COLLECTIVE, node, after, category="collective", collective="broadcast", group="world",
            size_bytes=sum(tensor.size_bytes for tensor in inputs),
        )  # fmt: skip
        self.sends.append(sent)
        return sent

    def _on_cpu(self, node: Node, after: list[StepOperation]) -> StepOperation:
        self.counts["operators of the CPU (the time that they took themselves)"] += 1
        operation = self.add(self._role(node, "cpu"), Kind.COMPUTE, node, after, category="idle", fixed_s=node.seconds)
        self.launched[node.id] = operation
        return operation

    def _kernel(self, node: Node) -> Kernel:
        """One kernel of the recorded time, with the amounts of the leaf operators of its launching node."""
        found = []
        for leaf in self._leaves(node.above):
            ends = tensors_of(leaf.inputs), tensors_of(leaf.outputs)
            if any(tensor.is_on_gpu for side in ends for tensor in side):
                found.append(kernel_of(leaf, *ends, shapes_of(leaf), self.counts))
        flops, read, written = (
            sum(kernel.count * getattr(kernel, field) for kernel in found) for field in ("flops", "read_bytes", "write_bytes")
        )
        siblings = sum(other.cat is not None for other in self.below[node.above]) or 1  # they share what the operator did
        largest = max(found, key=lambda kernel: kernel.flops * kernel.count, default=None)
        kind = kernel_class.kind_of(node.name)
        return Kernel(
            kind="gemm" if flops and kind not in ("attention", "gemv") else kind, variant=kernel_class.variant_of(node.name),
            flops=flops / siblings, read_bytes=read / siblings,
            write_bytes=written / siblings, recorded_s=node.seconds, name=clean_name(node.name),
            dtype=largest.dtype if largest and flops else kernel_class.dtype_of(node.name, Shapes().types),
        )  # fmt: skip

    def _leaves(self, identity: int) -> list[Node]:
        """Operators below a node that have none below them (itself, if it has none)."""
        operators = [node for node in self.below[identity] if node.cat is None]
        if not operators:
            own = self.names.get(identity)
            return [own] if own is not None and "::" in own.name and not is_free(own.name) else []
        return [leaf for node in operators for leaf in self._leaves(node.id)]
