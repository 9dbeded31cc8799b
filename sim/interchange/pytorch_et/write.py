"""Step -> PyTorch execution trace with times, one document per rank: what Chakra's linker makes of a trace and a profile.

Each operation is an operator (under a node of its phase) with its kernels as operators below it, and one node of GPU work
with the simulated time. Operators are `aten::mm` and `aten::copy_` where those say what is meant, else `tiersim::<name>` with
tensors of the right sizes. Dependencies are storages: every operation writes one, and reads those of what it waits for as
tensors without elements. Attributes of our own: `stream_name`, `source`, `target`, `is_load`, `tensor_class`, `layer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sim.interchange.one_rank import Move, OneRank, is_workless
from sim.placement.plan import Placement
from sim.records import Dtype, Kernel, Kind, Step, StepOperation

SCHEMA = "1.1.0-chakra.0.0.4"
_WIDTHS: dict[Dtype, tuple[int, str, str]] = {
    "fp32": (4, "float", "Float"), "tf32": (4, "float", "Float"), "fp16": (2, "c10::Half", "Half"),
    "bf16": (2, "c10::BFloat16", "BFloat16"),
    "fp8": (1, "c10::Float8_e4m3fn", "Float8_e4m3fn"), "int8": (1, "signed char", "Char"),
}  # fmt: skip
_RAW = (1, "unsigned char", "Byte")
_SCHEMAS = {
    "aten::mm": "aten::mm(Tensor self, Tensor mat2) -> Tensor",
    "aten::copy_": "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
}
#: the kind as the profiler's metadata spells it, and as NCCL's kernels do
_NCCL = {
    "all_reduce": ("allreduce", "AllReduce"), "all_gather": ("_allgather_base", "AllGather"),
    "broadcast": ("broadcast", "Broadcast"), "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter"),
    "all_to_all": ("all_to_all", "SendRecv"),
}  # fmt: skip
_ENGINES = {
    "forward": "## forward ##",
    "backward": "autograd::engine::evaluate_function: step",
    "update": "Optimizer.step#tiersim",
}
Operand = tuple[list[Any], list[int], str]  # tensor, shape, type


def documents_of(
    step: Step,
    placement: Placement,
    starts_s: Mapping[str, float],
    seconds: Mapping[str, float],
    ranks: Iterable[int],
) -> dict[int, dict[str, Any]]:
    """Rank -> document, ready for JSON. `starts_s`, `seconds`: operation id -> simulated start and duration."""
    wanted = set(ranks)
    found = {}
    for own in step.rank_classes:
        for rank in range(own.first_rank, own.first_rank + own.num_ranks):
            if rank in wanted:
                found[rank] = _Writer(OneRank(step, placement, seconds, own, rank), starts_s).document()
    return found


def encoded(document: Mapping[str, Any]) -> bytes:
    """The JSON file of a document."""
    return msgspec.json.encode(document)


class _Writer:
    """One rank's nodes."""

    def __init__(self, one: OneRank, starts_s: Mapping[str, float]) -> None:
        self.one, self.starts_s = one, starts_s
        self.nodes: list[dict[str, Any]] = []
        self.tensors = 0
        self.on_cpu: set[int] = set()  # storages in host memory
        self.of: dict[str, list[int]] = {}  # operation -> storages that stand for its end
        self.streams: dict[str, int] = {}
        self.phase, self.phase_node = "", 2
        self._node("[pytorch|profiler|execution_trace|process]", 1)
        self._node("[pytorch|profiler|execution_trace|thread]", 1)
        if len(one.all_ranks) > 1:
            self._groups()

    def document(self) -> dict[str, Any]:
        previous: dict[str, str] = {}
        for op in self.one.in_order():
            before = previous.get(op.stream, "")
            previous[op.stream] = op.id
            waits = [storage for name in op.after for storage in self._ends_of(name)]
            if is_workless(op):
                self.of[op.id] = list(dict.fromkeys((*self.of.get(before, []), *waits)))
                continue
            if (op.phase or "forward") != self.phase:
                self.phase = op.phase or "forward"
                self.phase_node = self._node(_ENGINES.get(self.phase, f"## {self.phase} ##"), 2)["id"]
            self.of[op.id] = self._operation(op, list(dict.fromkeys(waits)))
        end_us = max((node["ts"] + node["exclusive_dur"] for node in self.nodes if "ts" in node), default=0.0)
        return {"schema": SCHEMA, "pid": self.one.rank, "time": "", "start_ts": 0, "finish_ts": round(end_us),
                "nodes": self.nodes}  # fmt: skip

    def _groups(self) -> None:
        """The node that lists the process groups of this rank, as PyTorch writes it: one string of JSON."""
        world = {"world": [self.one.all_ranks]}
        listed = [
            {"pg_name": self.one.group_label(name, members), "pg_desc": name, "pg_size": len(members), "ranks": members}
            for name, lists in {**self.one.groups, **world}.items()
            for members in lists
            if self.one.rank in members and len(members) > 1
        ]
        node = self._node("## process_group:init ##", 2)
        node["inputs"] = {
            "values": [msgspec.json.encode(listed).decode()],
            "shapes": [[]],
            "types": ["String"],
            "strides": [[]],
        }

    def _ends_of(self, name: str) -> list[int]:
        """Storages of a dependency; one of another rank is a message received, if it is a message."""
        if name not in self.of:
            op = self.one.by_id[name]
            if op.collective != "point_to_point":
                return []
            own = self._storage()
            operand = self._tensor(own, op.size_bytes * op.num_calls, _RAW, "cuda:0")
            outer = self._node("nccl:recv", self.phase_node, outputs=[operand])
            # nothing is waited for beyond the sender's own time: a receive takes no time of its own
            self._timed("ncclDevKernel_Recv", outer["id"], op, 1e-9, "kernel", outputs=[operand])
            self.of[name] = [own]
        return self.of[name]

    def _operation(self, op: StepOperation, waits: list[int]) -> list[int]:
        inputs = [self._tensor(storage, 0, _RAW, "cpu" if storage in self.on_cpu else "cuda:0") for storage in waits]
        if op.kind in (Kind.TRANSFER, Kind.IO):
            return [self._move(op, move, inputs) for move in self.one.moves(op)] or waits
        own = self._storage()
        end = self._tensor(own, 0, _RAW, "cuda:0")
        seconds = self.one.duration_s(op)
        if op.kind is Kind.COLLECTIVE:
            self._collective(op, inputs, end, seconds)
        elif op.kind is Kind.COMPUTE and op.kernels:
            outer = self._node(f"tiersim::{_plain(op.name or op.id)}", self.phase_node, attributes=_layer(op))
            for kernel in op.kernels:
                self._kernel(kernel, outer["id"])
            self._timed(op.name or op.id, outer["id"], op, seconds, "kernel", inputs=inputs, outputs=[end])
        else:  # the host's own work: no GPU, so no `cat`
            size = op.num_elements * op.bytes_per_element
            held = [self._tensor(self._storage(), size, _RAW, "cpu")] if size else []
            self._timed(f"tiersim::{_plain(op.name or op.id)}", self.phase_node, op, seconds, "", inputs=[*inputs, *held],
                        outputs=[end])  # fmt: skip
        return [own]

    def _move(self, op: StepOperation, move: Move, inputs: list[Operand]) -> int:
        devices = ["cuda:0" if end == "gpu" else "cpu" for end in (move.target, move.source)]
        target = self._storage()
        if devices[0] == "cpu":
            self.on_cpu.add(target)
        operands = [self._tensor(target, move.size_bytes, _RAW, devices[0])]
        operands.append(self._tensor(self._storage(), move.size_bytes, _RAW, devices[1]))
        outer = self._node("aten::copy_", self.phase_node, inputs=operands, outputs=operands[:1], attributes=_layer(op))
        way = "HtoD" if devices[0] != "cpu" else "DtoH"
        host = "Pinned" if op.is_pinned else "Pageable"
        ends = f"{host} -> Device" if way == "HtoD" else f"Device -> {host}"
        own: dict[str, Any] = {"source": move.source, "target": move.target, "is_load": move.is_load}
        own |= {"tensor_class": op.tensor_class.value} if op.tensor_class else {}
        is_on_gpu = "cuda:0" in devices
        self._timed(
            f"Memcpy {way} ({ends})" if is_on_gpu else "tiersim::move", outer["id"], op, self.one.duration_s(op),
            "gpu_memcpy" if is_on_gpu else "", inputs=[*operands, *inputs], outputs=operands[:1], attributes=own,
        )  # fmt: skip
        return target

    def _collective(self, op: StepOperation, inputs: list[Operand], end: Operand, seconds: float) -> None:
        width = _WIDTHS.get(op.dtype, _RAW)
        calls = max(1, round(op.num_calls))
        size = op.size_bytes * op.num_calls / calls
        if op.collective == "point_to_point":
            sent = self._tensor(self._storage(), size * calls, _RAW, "cuda:0")
            outer = self._node("nccl:send", self.phase_node, inputs=[sent])
            self._timed("ncclDevKernel_Send", outer["id"], op, seconds, "kernel", inputs=[sent, *inputs], outputs=[end])
            return
        group, members = self.one.members(op)
        brought = size / max(1, len(members)) if op.collective == "all_gather" else size
        result = size / max(1, len(members)) if op.collective == "reduce_scatter" else size
        called, kernel = _NCCL[op.collective or "all_reduce"]
        attributes: dict[str, Any] = {
            "collective_name": called, "dtype": width[2], "in_msg_nelems": round(brought / width[0]),
            "out_msg_nelems": round(result / width[0]), "pg_name": self.one.group_label(group, members), "pg_desc": group,
            "pg_size": len(members), "global_rank_start": members[0],
            "global_rank_stride": members[1] - members[0] if len(members) > 1 else 1,
        }  # fmt: skip
        for call in range(calls):
            operand = self._tensor(self._storage(), brought, width, "cuda:0")
            outer = self._node("record_param_comms", self.phase_node, inputs=[operand], attributes=attributes)
            inner = self._node(f"nccl:{called}", outer["id"], inputs=[operand], attributes=_layer(op))
            self._timed(
                f"ncclDevKernel_{kernel}", inner["id"], op, seconds / calls, "kernel", inputs=[operand, *inputs],
                outputs=[end], after_s=call * seconds / calls,
            )  # fmt: skip

    def _kernel(self, kernel: Kernel, parent: int) -> None:
        """The operators of one kernel, one for all its repetitions unless it is a matrix product of known shape."""
        width = _WIDTHS.get(kernel.dtype, _RAW)
        if kernel.m and kernel.kind == "gemm" and kernel.count == int(kernel.count):
            for _ in range(int(kernel.count)):
                a, b, c = (
                    self._tensor(self._storage(), rows * columns * width[0], width, "cuda:0", [rows, columns])
                    for rows, columns in ((kernel.m, kernel.k), (kernel.k, kernel.n), (kernel.m, kernel.n))
                )
                self._node("aten::mm", parent, inputs=[a, b], outputs=[c])
            return
        read, written = (
            self._tensor(self._storage(), size * kernel.count, _RAW, "cuda:0")
            for size in (kernel.read_bytes, kernel.write_bytes)
        )
        flops = {"flops": round(kernel.flops * kernel.count), "dtype": width[2]} if kernel.flops else {}
        self._node(f"tiersim::{_plain(kernel.name or kernel.kind)}", parent, inputs=[read], outputs=[written], attributes=flops)

    def _timed(
        self,
        name: str,
        parent: int,
        op: StepOperation,
        seconds: float,
        category: str,
        inputs: Iterable[Operand] = (),
        outputs: Iterable[Operand] = (),
        attributes: Mapping[str, Any] | None = None,
        after_s: float = 0.0,
    ) -> None:
        role = op.stream.split(".", 1)[1]
        own: dict[str, Any] = {"stream_name": role, **(attributes or {})}
        node = self._node(name, parent, inputs, outputs, own)
        duration_us = 1e6 * seconds
        node |= {
            "ts": 1e6 * (self.starts_s.get(op.id, 0.0) + after_s),
            "inclusive_dur": duration_us,
            "exclusive_dur": duration_us,
        }
        if category:
            node |= {"cat": category, "ph": "X", "stream": 7 + self.streams.setdefault(role, len(self.streams))}

    def _node(
        self,
        name: str,
        parent: int,
        inputs: Iterable[Operand] = (),
        outputs: Iterable[Operand] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        fixed: dict[str, Any] = {"rf_id": len(self.nodes), "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0}
        fixed |= {"op_schema": _SCHEMAS.get(name, ""), **(attributes or {})}
        node = {
            "id": len(self.nodes) + 1, "name": name, "ctrl_deps": parent, "inputs": _side(inputs), "outputs": _side(outputs),
            "attrs": [{"name": key, "type": _type(value), "value": value} for key, value in fixed.items()],
        }  # fmt: skip
        self.nodes.append(node)
        return node

    def _storage(self) -> int:
        self.tensors += 1
        return self.tensors

    def _tensor(
        self, storage: int, size_bytes: float, width: tuple[int, str, str], device: str, shape: list[int] | None = None
    ) -> Operand:
        elements = round(size_bytes / width[0])
        return [self._storage(), storage, 0, elements, width[0], device], shape or [elements], f"Tensor({width[1]})"


def _side(operands: Iterable[Operand]) -> dict[str, list[Any]]:
    held = list(operands)
    return {"values": [item[0] for item in held], "shapes": [item[1] for item in held], "types": [item[2] for item in held],
            "strides": [_strides(item[1]) for item in held]}  # fmt: skip


def _strides(shape: list[int]) -> list[int]:
    return [shape[1], 1] if len(shape) == 2 else [1] * len(shape)


def _layer(op: StepOperation) -> dict[str, Any]:
    return {"layer": op.layer} if op.layer >= 0 else {}


def _type(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "int64" if value < 0 else "uint64"


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name) or "work"
