"""PyTorch execution traces (ExecutionTraceObserver JSON) -> Step: operators with tensors, but without a single duration.

Leaf operators on GPU tensors become kernels timed by the kernel law; the program's order is one compute stream; a
collective waits for the last writers of its storages and whoever reads what it wrote waits for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.interchange import kernel_class
from sim.interchange.kernel_class import Shapes
from sim.interchange.kineto.collectives import kind_of
from sim.interchange.kineto.events import clean_name
from sim.records import Kernel, Kind, RankClass, Step, StepOperation

_TENSOR = re.compile(r"Tensor\(([^)]*)\)")
#: operators that move no data: views and bookkeeping
_FREE = re.compile(
    r"::(?:view|_?unsafe_view|t|transpose|permute|as_strided|detach_?|alias|expand|slice|select|narrow|squeeze|unsqueeze|"
    r"reshape|flatten|split|chunk|unbind|empty\w*|new_empty\w*|resize_\w*|result_type|_local_scalar_dense|item|is_\w+|size|stride|"
    r"set_|record_stream|lift_fresh|_has_compatible_shallow_copy_type|can_cast|numpy_T|contiguous|to|_to_copy)$"
)


class _Node(msgspec.Struct):
    """One node; schema 1.0.1 has flat fields, later ones nest them and put the rest into attrs."""

    id: int
    name: str = ""
    parent: int | None = None
    ctrl_deps: int | list[int] | None = None
    inputs: Any = None
    input_shapes: Any = None
    input_types: Any = None
    outputs: Any = None
    tid: int | None = None
    attrs: list[dict[str, Any]] = []


class _Document(msgspec.Struct):
    nodes: list[_Node]
    schema: str = ""


class _Tensor(msgspec.Struct, frozen=True):
    storage: tuple[int, str]
    size_bytes: float
    device: str


def looks_like(content: bytes) -> bool:
    """Whether the content is an execution trace: an object with "schema" and "nodes"."""
    head = content[:2048]
    return head.lstrip()[:1] == b"{" and b'"schema"' in head and b'"nodes"' in content


def step_from(found: Sequence[tuple[str, bytes]], *, num_ranks: int = 0) -> Step:
    """One rank's execution trace as a step; it stands for all `num_ranks` (default: what the file says, else the files).

    Of several files the first by name is read: they hold no times by which ranks could differ. Raises InputError for other
    JSON and for traces without GPU operators.
    """
    file, content = min(found)
    try:
        document = msgspec.json.decode(content, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(Fault(what=f"is no execution trace: {error}", remedy="copy it again", file=file)) from error
    reader = _Reader(document)
    operations = reader.operations()
    if not any(op.kernels or op.kind is Kind.COLLECTIVE for op in operations):
        what = "has no operator on GPU tensors"
        raise InputError(Fault(what=what, remedy="record an iteration that runs on a GPU", file=file))
    world = num_ranks or max(reader.world, len(found))
    notes = [f"schema {clean_name(document.schema)}: durations are not recorded, kernels are timed by the kernel law"]
    if world > 1:
        notes.append(f"one rank's file stands for all {world} ranks")
    elif any(op.kind is Kind.COLLECTIVE for op in operations):
        notes.append("the number of ranks is not known: collectives cost nothing; give --ranks N")
    notes += [f"{what}: {count}" for what, count in sorted(reader.counts.items())]
    return Step(
        name=file.rsplit("/", 1)[-1], operations=tuple(operations),
        rank_classes=(RankClass(name="rank0", num_ranks=world),), group_sizes={"world": world}, origin="pytorch-et",
        notes=tuple(notes),
    )  # fmt: skip


class _Reader:
    """Walks the nodes in the order of their ids, which is the program's."""

    def __init__(self, document: _Document) -> None:
        self.nodes = sorted(document.nodes, key=lambda node: node.id)
        self.names = {node.id: node for node in self.nodes}
        self.parents = {_parent(node) for node in self.nodes if not node.name.startswith("nccl:")}
        self.counts: Counter[str] = Counter()
        self.sequence: Counter[str] = Counter()
        self.done: list[StepOperation] = []
        self.writer: dict[tuple[int, str], StepOperation] = {}
        self.pending: list[StepOperation] = []  # collectives that the next kernel waits for
        self.waiting = False
        self.world = 1

    def operations(self) -> list[StepOperation]:
        for node in self.nodes:
            inputs, shapes = _tensors(node.inputs), _shapes(node)
            outputs = _tensors(node.outputs)
            self._world(node)
            if node.name.startswith(("nccl:", "hccl:")):
                self._collective(node, inputs, outputs)
            elif node.name == "record_param_comms":
                self.waiting |= any(value == "wait" for value in _values(node.inputs) if isinstance(value, str))
            elif node.id not in self.parents and "::" in node.name and not _FREE.search(node.name):
                self._leaf(node, inputs, outputs, shapes)
        return self.done

    def _world(self, node: _Node) -> None:
        sizes = [attr.get("value") for attr in node.attrs if attr.get("name") == "pg_size"]
        self.world = max([self.world, *(size for size in sizes if isinstance(size, int))])

    def _add(self, role: str, kind: Kind, node: _Node, after: list[StepOperation], **fields: Any) -> StepOperation:
        stream = f"rank0.{role}"
        waits = tuple(dict.fromkeys(op.id for op in after if op.stream != stream))
        operation = StepOperation(
            id=f"{stream}.{self.sequence[stream]}", kind=kind, stream=stream, sequence=self.sequence[stream],
            name=clean_name(node.name), after=waits, phase=self._phase(node), **fields,
        )  # fmt: skip
        self.sequence[stream] += 1
        self.done.append(operation)
        return operation

    def _phase(self, node: _Node) -> str:
        around: _Node | None = node
        for _ in range(50):
            if around is None:
                break
            if around.name.startswith("autograd::engine"):
                return "backward"
            if around.name.startswith("Optimizer."):
                return "update"
            around = self.names.get(_parent(around))
        return "forward"

    def _writers(self, tensors: list[_Tensor]) -> list[StepOperation]:
        return [self.writer[tensor.storage] for tensor in tensors if tensor.storage in self.writer]

    def _collective(self, node: _Node, inputs: list[_Tensor], outputs: list[_Tensor]) -> None:
        kind = kind_of(node.name) or "all_reduce"
        size = sum(tensor.size_bytes for tensor in inputs)
        held = [op for op in self._writers(inputs) if op.kind is not Kind.COLLECTIVE] or self._last("compute")
        operation = self._add(
            "collective", Kind.COLLECTIVE, node, held, category="collective", collective=kind, group="world",
            size_bytes=size * (self.world if kind == "all_gather" else 1),
        )  # fmt: skip
        self.pending.append(operation)
        for tensor in (*inputs, *outputs):
            self.writer[tensor.storage] = operation

    def _last(self, role: str) -> list[StepOperation]:
        return next(([op] for op in reversed(self.done) if op.stream == f"rank0.{role}"), [])

    def _leaf(self, node: _Node, inputs: list[_Tensor], outputs: list[_Tensor], shapes: Shapes) -> None:
        devices = {tensor.device.split(":")[0] for tensor in (*inputs, *outputs)}
        if not devices & {"cuda", "hip", "xpu"}:
            self.counts["operators on CPU tensors (left out: they hold no times)"] += bool(devices)
            return
        after = self._writers(inputs)
        if self.waiting:
            after += self.pending
            self.pending, self.waiting = [], False
        if "copy_" in node.name and "cpu" in devices and len(inputs) > 1:
            is_load = inputs[1].device.startswith("cpu")
            source, target = ("dram", "gpu") if is_load else ("gpu", "dram")
            operation = self._add(
                "h2d" if is_load else "d2h", Kind.TRANSFER, node, after + self._last("compute"), category="transfer",
                source=source, target=target, size_bytes=inputs[0].size_bytes,
            )  # fmt: skip
        else:
            operation = self._add("compute", Kind.COMPUTE, node, after, kernels=(self._kernel(node, inputs, outputs, shapes),))
        for tensor in outputs or inputs[:1]:
            self.writer[tensor.storage] = operation

    def _kernel(self, node: _Node, inputs: list[_Tensor], outputs: list[_Tensor], shapes: Shapes) -> Kernel:
        amount = kernel_class.amount_of(node.name, shapes)
        read = sum(tensor.size_bytes for tensor in inputs)
        written = sum(tensor.size_bytes for tensor in outputs) or (inputs[0].size_bytes if inputs else 0.0)
        self.counts["kernels with FLOPs from shapes" if amount.flops else "kernels with bytes only"] += 1
        return Kernel(
            kind="gemm" if amount.flops else "elementwise", flops=amount.flops, read_bytes=read, write_bytes=written,
            dtype=kernel_class.dtype_of("", shapes.types), name=clean_name(node.name),
        )  # fmt: skip


def _parent(node: _Node) -> int:
    if node.parent is not None:
        return node.parent
    deps = node.ctrl_deps
    return deps[0] if isinstance(deps, list) and deps else deps if isinstance(deps, int) else -1


def _values(side: Any) -> list[Any]:
    values = side.get("values") if isinstance(side, dict) else side
    return values if isinstance(values, list) else []


def _tensors(side: Any) -> list[_Tensor]:
    """Tensors among the values: [tensor id, storage id, offset, elements, bytes per element, device], also in lists."""
    found: list[_Tensor] = []
    for value in _values(side):
        if not isinstance(value, list) or not value:
            continue
        if isinstance(value[0], list):
            found += _tensors(value)
        elif len(value) == 6 and isinstance(value[5], str) and all(isinstance(v, int) for v in value[:5]):
            found.append(_Tensor((value[1], value[5]), float(value[3]) * value[4], value[5]))
    return found


def _shapes(node: _Node) -> Shapes:
    side = node.inputs
    dims = side.get("shapes") if isinstance(side, dict) else node.input_shapes
    types = side.get("types") if isinstance(side, dict) else node.input_types
    plain = [match[1] if (match := _TENSOR.search(str(item))) else str(item) for item in types or ()]
    scalars = [str(value) for value in _values(side)]
    return kernel_class.shapes_from(dims, plain, scalars)
