"""What both readers of PyTorch execution traces share: streams in order, phases by ancestors, storages as dependencies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sim.interchange.groups import Communicator, Groups, communicator, listed_ranks
from sim.interchange.kineto.collectives import kind_of
from sim.interchange.kineto.events import clean_name
from sim.interchange.pytorch_et.nodes import Document, Node, Tensor
from sim.records import CollectiveKind, Group, Kind, StepOperation

_DEPTH = 50  # of ancestors that are looked at


class Walk:
    """One rank's operations so far, of class "rank0"."""

    def __init__(self, document: Document, num_ranks: int) -> None:
        self.nodes = document.nodes
        self.names = {node.id: node for node in self.nodes}
        self.counts: Counter[str] = Counter()
        self.sequence: Counter[str] = Counter()
        self.done: list[StepOperation] = []
        self.last: dict[str, StepOperation] = {}  # role -> its latest operation
        self.writer: dict[tuple[int, str], StepOperation] = {}
        told = _told_groups(self.nodes)
        found = {node.id: held for node in self.nodes if (held := _communicator(node, told)).size}
        # a group of evenly spaced ranks repeats until all ranks are in one
        spans = (held.size * max(held.stride, 1) for held in (*found.values(), *told.values()))
        self.world = num_ranks or max(1, *spans) if found or told else max(1, num_ranks)
        self.communicators = found
        self.groups = Groups(found.values(), self.world, self.counts)

    def add(self, role: str, kind: Kind, node: Node, after: list[StepOperation], **fields: Any) -> StepOperation:
        """Append an operation to the stream of a role (h2d, compute1, ...); it waits for those of `after` on other streams."""
        stream = f"rank0.{role}"
        waits = tuple(dict.fromkeys(op.id for op in after if op.stream != stream))
        operation = StepOperation(
            id=f"{stream}.{self.sequence[stream]}", kind=kind, stream=stream, sequence=self.sequence[stream],
            name=clean_name(node.name), after=waits, phase=self.phase(node), **fields,
        )  # fmt: skip
        self.sequence[stream] += 1
        self.done.append(operation)
        self.last[role] = operation
        return operation

    def add_collective(
        self, node: Node, after: list[StepOperation], size_bytes: float, role: str = "collective"
    ) -> StepOperation:
        """A collective on the stream of a role; `size_bytes` is this rank's input (an all-gather's result is that of all)."""
        above = self.around(node)
        named = next((str(held) for item in above if (held := item.attribute("collective_name"))), "")
        found = (kind_of(name) for name in (named, *(item.name for item in above)))
        kind: CollectiveKind = next((kind for kind in found if kind is not None), "all_reduce")
        held = next((self.communicators[item.id] for item in above if item.id in self.communicators), Communicator(self.world))
        group: Group = self.groups.name(held)
        size_bytes *= self.groups.sizes[group] if kind == "all_gather" else 1
        return self.add(role, Kind.COLLECTIVE, node, after, category="collective", collective=kind, group=group,
                        size_bytes=size_bytes)  # fmt: skip

    def around(self, node: Node) -> list[Node]:
        """The node and its ancestors, innermost first."""
        found = [node]
        while len(found) < _DEPTH and (above := self.names.get(found[-1].above)) is not None and above is not found[-1]:
            found.append(above)
        return found

    def phase(self, node: Node) -> str:
        """Which part of a step a node belongs to, by its ancestors."""
        for above in self.around(node):
            if above.name.startswith("autograd::engine"):
                return "backward"
            if above.name.startswith("Optimizer."):
                return "update"
            if above.name.startswith("## ") and above.name.endswith(" ##"):
                return clean_name(above.name[3:-3])
        return "forward"

    def writers(self, tensors: list[Tensor]) -> list[StepOperation]:
        """The last writer of each tensor's storage, where there is one."""
        return [self.writer[tensor.storage] for tensor in tensors if tensor.storage in self.writer]


def _told_groups(nodes: Sequence[Node]) -> dict[str, Communicator]:
    """Process groups by name, of the node that lists them all (PyTorch 2.4 on); {} where there is none or it is damaged."""
    node = next((node for node in nodes if node.name.strip("# ") == "process_group:init"), None)
    values = node.inputs.get("values") if node and isinstance(node.inputs, dict) else node.inputs if node else None
    text = next((value for value in values if isinstance(value, str)), "") if isinstance(values, list) else ""
    try:
        listed = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return {}
    found = {}
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict) and isinstance(name := item.get("pg_name"), str):
            found[name] = communicator(listed_ranks(item.get("ranks")), _whole(item.get("pg_size", item.get("group_size"))))
    return {name: held for name, held in found.items() if held.size}


def _communicator(node: Node, told: Mapping[str, Communicator]) -> Communicator:
    """Process group of a communication node (`record_param_comms` from PyTorch 2.3 on); of size 0 where it tells none."""
    if isinstance(name := node.attribute("pg_name"), str) and name in told:
        return told[name]
    if not any(item.get("name") == "pg_size" for item in node.attrs):
        return Communicator(0)
    size, start, stride = (_whole(node.attribute(name)) for name in ("pg_size", "global_rank_start", "global_rank_stride"))
    return communicator([start, start + stride], size) if stride > 0 and size > 1 else Communicator(size)


def _whole(value: Any) -> int:
    if isinstance(value, str) and value.lstrip("-").isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
