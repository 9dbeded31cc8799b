"""Step -> Chakra nodes, one trace per rank: kernels as COMP, copies as MEM_LOAD / MEM_STORE between named tiers.

MEM_LOAD moves towards the GPU, MEM_STORE away from it; a class that is interleaved over tiers becomes one node per tier.
Stream order is written as control dependencies, `after` as data dependencies. Attributes are those that the reference
feeder reads, plus `source`, `target`, `tensor_class`, `phase`, `layer`, `stream_name`, which it ignores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sim.interchange.chakra.nodes import COMM_TYPES, Node, NodeType, Trace
from sim.placement.plan import Placement
from sim.program.transfers import Membership
from sim.records import Kind, RankClass, Step, StepOperation, TensorClass

#: nearer to the GPU first; a tier name stands behind the role that its name ends with
_DISTANCE = {"gpu": 0, "hbm": 0, "gddr": 0, "dram": 1, "host": 1, "lpddr": 1, "cxl": 2, "pmem": 3, "nvme": 4, "storage": 4}
_WORKLESS = (Kind.MARKER, Kind.ALLOCATE, Kind.FREE)
#: wire fields of the attributes, as the reference feeder reads them
_BOOL, _INT32, _INT64, _UINT64, _STRING, _DOUBLE = 27, 7, 9, 13, 29, 3


def traces_of(
    step: Step, placement: Placement, *, seconds: Mapping[str, float] | None = None, ranks: Iterable[int] | None = None
) -> dict[int, Trace]:
    """Rank -> trace. `seconds`: operation id -> simulated duration (default: recorded or none); `ranks`: default all."""
    wanted = None if ranks is None else set(ranks)
    found = {}
    for rank_class in step.rank_classes:
        for member in range(rank_class.num_ranks):
            rank = rank_class.first_rank + member
            if wanted is None or rank in wanted:
                found[rank] = _Writer(step, placement, seconds or {}, rank_class, rank).trace()
    return found


def groups_of(step: Step) -> dict[str, list[list[int]]]:
    """Group name -> its member lists, in the rank order of the step (tensor fastest, pipeline slowest)."""
    world = max((item.first_rank + item.num_ranks for item in step.rank_classes), default=1)
    return {name: _members(step.group_sizes, name, world) for name in step.group_sizes}


def _members(sizes: Mapping[str, int], name: str, world: int) -> list[list[int]]:
    size = min(sizes[name], world)
    stride = Membership({**sizes, "world": world}, 1).stride(name)
    seen: set[int] = set()
    lists = []
    for rank in range(world):
        if rank not in seen:
            members = [rank + index * stride for index in range(size) if rank + index * stride < world]
            seen.update(members)
            lists.append(members)
    return lists


class _Writer:
    """One rank's nodes."""

    def __init__(self, step: Step, placement: Placement, seconds: Mapping[str, float], own: RankClass, rank: int) -> None:
        self.step, self.placement, self.seconds, self.own, self.rank = step, placement, seconds, own, rank
        prefix = own.name + "."
        self.operations = sorted(
            (op for op in step.operations if op.stream.startswith(prefix)), key=lambda op: (op.sequence, op.stream)
        )
        self.by_id = {op.id: op for op in step.operations}
        self.nodes: list[Node] = []
        self.of: dict[str, list[int]] = {}  # operation -> nodes
        self.received: dict[str, int] = {}  # message of another rank -> receive node
        self.groups = groups_of(step)

    def trace(self) -> Trace:
        previous: dict[str, str] = {}
        for op in self._in_order():
            before = previous.get(op.stream)
            previous[op.stream] = op.id
            data = [node for name in op.after for node in self._nodes_of(name)]
            control = self.of.get(before, []) if before else []
            if op.kind in _WORKLESS or (op.kind is Kind.COMPUTE and not op.kernels and not op.fixed_s):
                self.of[op.id] = list(dict.fromkeys((*control, *data)))  # nothing to do: pass its dependencies on
                continue
            self.of[op.id] = []
            for kind, attributes in self._work(op):
                node = self._add(kind, op.name or op.id, attributes)
                node.ctrl_deps, node.data_deps = list(dict.fromkeys(control)), list(dict.fromkeys(data))
                node.duration_us = round(1e6 * self._duration_s(op))
                self.of[op.id].append(node.id)
        return Trace(file=f"{self.step.name}.{self.rank}.et", version="0.0.4", nodes=self.nodes)

    def _in_order(self) -> Sequence[StepOperation]:
        """Operations so that dependencies inside the rank come first (ids then rise along them)."""
        done: set[str] = set()
        order: list[StepOperation] = []
        waiting = list(self.operations)
        streams: dict[str, list[StepOperation]] = {}
        for op in waiting:
            streams.setdefault(op.stream, []).append(op)
        own = {op.id for op in waiting}
        while len(order) < len(waiting):
            for queue in streams.values():
                while queue and all(name in done or name not in own for name in queue[0].after):
                    done.add(queue[0].id)
                    order.append(queue.pop(0))
        return order

    def _nodes_of(self, name: str) -> list[int]:
        """Nodes of a dependency; one of another rank is a message received, if it is a message."""
        if name in self.of:
            return self.of[name]
        op = self.by_id[name]
        if op.collective != "point_to_point":
            return []
        if name not in self.received:
            sender = self._partner(op.stream.split(".", 1)[0])
            attributes = {"comm_size": (_INT64, round(op.size_bytes * op.num_calls)), "comm_src": (_INT32, sender)}
            attributes |= {"comm_dst": (_INT32, self.rank), "comm_tag": (_INT32, self._tag(op))}
            self.received[name] = self._add(NodeType.COMM_RECV, f"receive {op.name or op.id}", attributes).id
        return [self.received[name]]

    def _partner(self, rank_class: str) -> int:
        other = next(item for item in self.step.rank_classes if item.name == rank_class)
        return other.first_rank + min(self.rank - self.own.first_rank, other.num_ranks - 1)

    def _tag(self, op: StepOperation) -> int:
        return op.sequence

    def _duration_s(self, op: StepOperation) -> float:
        if op.id in self.seconds:
            return self.seconds[op.id]
        return op.fixed_s + sum(kernel.recorded_s * kernel.count for kernel in op.kernels)

    def _add(self, kind: NodeType, name: str, attributes: Mapping[str, tuple[int, Any]]) -> Node:
        node = Node(len(self.nodes), name, int(kind))
        for key, (field, value) in attributes.items():
            node.attributes[key], node.kinds[key] = value, field
        self.nodes.append(node)
        return node

    def _work(self, op: StepOperation) -> Iterable[tuple[NodeType, dict[str, tuple[int, Any]]]]:
        """(type, attributes) of each node of an operation."""
        common: dict[str, tuple[int, Any]] = {"is_cpu_op": (_BOOL, False), "stream_name": (_STRING, op.stream.split(".", 1)[1])}
        common |= {"phase": (_STRING, op.phase)} if op.phase else {}
        common |= {"layer": (_INT32, op.layer)} if op.layer >= 0 else {}
        if op.kind in (Kind.TRANSFER, Kind.IO):
            yield from self._moves(op, common)
        elif op.kind is Kind.COLLECTIVE:
            yield self._communication(op, common)
        else:
            flops = sum(kernel.flops * kernel.count for kernel in op.kernels)
            size = sum((kernel.read_bytes + kernel.write_bytes) * kernel.count for kernel in op.kernels)
            size += op.num_elements * op.bytes_per_element
            is_cpu = op.kind is Kind.HOST_UPDATE or not op.kernels
            amounts = {"num_ops": (_INT64, round(flops)), "tensor_size": (_UINT64, round(size))}
            yield NodeType.COMP, common | amounts | {"is_cpu_op": (_BOOL, is_cpu)}

    def _moves(
        self, op: StepOperation, common: dict[str, tuple[int, Any]]
    ) -> Iterable[tuple[NodeType, dict[str, tuple[int, Any]]]]:
        for source, source_share in self._tiers(op.source, op.layer):
            for target, target_share in self._tiers(op.target, op.layer):
                size = round(op.size_bytes * source_share * target_share)
                if source == target or not size:
                    continue
                kind = NodeType.MEM_LOAD if _distance(source) > _distance(target) else NodeType.MEM_STORE
                ends = {"source": (_STRING, source), "target": (_STRING, target)}
                held = {"tensor_class": (_STRING, op.tensor_class.value)} if op.tensor_class else {}
                yield kind, common | {"tensor_size": (_UINT64, size)} | ends | held

    def _tiers(self, end: str, layer: int) -> list[tuple[str, float]]:
        if not end.startswith("home:"):
            return [(end or "gpu", 1.0)]
        return list(self.placement.shares(TensorClass(end.removeprefix("home:")), layer).items())

    def _communication(
        self, op: StepOperation, common: dict[str, tuple[int, Any]]
    ) -> tuple[NodeType, dict[str, tuple[int, Any]]]:
        size = op.size_bytes * op.num_calls
        if op.collective == "point_to_point":
            ends = {"comm_src": (_INT32, self.rank), "comm_dst": (_INT32, self._partner(op.target or self.own.name))}
            more = {"comm_size": (_INT64, round(size)), "comm_tag": (_INT32, self._tag(op))}
            return NodeType.COMM_SEND, common | more | ends
        group = op.group or "world"
        members = next((item for item in self.groups.get(group, []) if self.rank in item), [self.rank])
        if op.collective == "all_gather":
            size /= max(1, len(members))  # the format counts what each member brings
        kind = COMM_TYPES.index(op.collective or "all_reduce")
        named = {"pg_name": (_STRING, f"{group}{self.groups.get(group, [[]]).index(members) if group in self.groups else 0}")}
        return NodeType.COMM_COLL, common | {"comm_type": (_INT64, kind), "comm_size": (_INT64, round(size))} | named


def _distance(tier: str) -> int:
    name = tier.rsplit(".", 1)[-1].rstrip("0123456789")
    return _DISTANCE.get(name, next((d for key, d in _DISTANCE.items() if key in tier), 1))
