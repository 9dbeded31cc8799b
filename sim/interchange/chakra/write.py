"""Step -> Chakra nodes, one trace per rank: kernels as COMP, copies as MEM_LOAD / MEM_STORE between named tiers.

MEM_LOAD moves towards the GPU, MEM_STORE away from it; a class that is interleaved over tiers becomes one node per tier.
Stream order is written as control dependencies, `after` as data dependencies. Attributes are those that the reference
feeder reads, plus `source`, `target`, `tensor_class`, `phase`, `layer`, `stream_name`, which it ignores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sim.interchange.chakra.nodes import COMM_TYPES, Node, NodeType, Trace
from sim.interchange.one_rank import OneRank, is_workless
from sim.placement.plan import Placement
from sim.records import Kind, Step, StepOperation

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
                found[rank] = _Writer(OneRank(step, placement, seconds or {}, rank_class, rank)).trace()
    return found


class _Writer:
    """One rank's nodes."""

    def __init__(self, one: OneRank) -> None:
        self.one = one
        self.nodes: list[Node] = []
        self.of: dict[str, list[int]] = {}  # operation -> nodes
        self.received: dict[str, int] = {}  # message of another rank -> receive node

    def trace(self) -> Trace:
        previous: dict[str, str] = {}
        for op in self.one.in_order():
            before = previous.get(op.stream)
            previous[op.stream] = op.id
            data = [node for name in op.after for node in self._nodes_of(name)]
            control = self.of.get(before, []) if before else []
            if is_workless(op):
                self.of[op.id] = list(dict.fromkeys((*control, *data)))  # nothing to do: pass its dependencies on
                continue
            self.of[op.id] = []
            for kind, attributes in self._work(op):
                node = self._add(kind, op.name or op.id, attributes)
                node.ctrl_deps, node.data_deps = list(dict.fromkeys(control)), list(dict.fromkeys(data))
                node.duration_us = round(1e6 * self.one.duration_s(op))
                self.of[op.id].append(node.id)
        return Trace(file=f"{self.one.step.name}.{self.one.rank}.et", version="0.0.4", nodes=self.nodes)

    def _nodes_of(self, name: str) -> list[int]:
        """Nodes of a dependency; one of another rank is a message received, if it is a message."""
        if name in self.of:
            return self.of[name]
        op = self.one.by_id[name]
        if op.collective != "point_to_point":
            return []
        if name not in self.received:
            sender = self.one.partner(op.stream.split(".", 1)[0])
            attributes = {"comm_size": (_INT64, round(op.size_bytes * op.num_calls)), "comm_src": (_INT32, sender)}
            attributes |= {"comm_dst": (_INT32, self.one.rank), "comm_tag": (_INT32, op.sequence)}
            self.received[name] = self._add(NodeType.COMM_RECV, f"receive {op.name or op.id}", attributes).id
        return [self.received[name]]

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
        for move in self.one.moves(op):
            kind = NodeType.MEM_LOAD if move.is_load else NodeType.MEM_STORE
            ends = {"source": (_STRING, move.source), "target": (_STRING, move.target)}
            held: dict[str, tuple[int, Any]] = {"tensor_class": (_STRING, op.tensor_class.value)} if op.tensor_class else {}
            held |= {} if op.is_pinned else {"is_pinned": (_BOOL, False)}
            yield kind, common | {"tensor_size": (_UINT64, move.size_bytes)} | ends | held

    def _communication(
        self, op: StepOperation, common: dict[str, tuple[int, Any]]
    ) -> tuple[NodeType, dict[str, tuple[int, Any]]]:
        size = op.size_bytes * op.num_calls
        if op.collective == "point_to_point":
            ends = {"comm_src": (_INT32, self.one.rank), "comm_dst": (_INT32, self.one.partner(op.target or self.one.own.name))}
            more = {"comm_size": (_INT64, round(size)), "comm_tag": (_INT32, op.sequence)}
            return NodeType.COMM_SEND, common | more | ends
        group, members = self.one.members(op)
        if op.collective == "all_gather":
            size /= max(1, len(members))  # the format counts what each member brings
        kind = COMM_TYPES.index(op.collective or "all_reduce")
        named = {"pg_name": (_STRING, self.one.group_label(group, members))}
        return NodeType.COMM_COLL, common | {"comm_type": (_INT64, kind), "comm_size": (_INT64, round(size))} | named
