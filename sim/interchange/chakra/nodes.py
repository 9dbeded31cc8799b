"""Chakra execution trace (schema 0.0.4) as nodes: read from protobuf or from the JSON dialect, written to protobuf.

Attributes are read by the type they were written with: the same name comes as bool or int32, and may have no value at all
(generators write that). An attribute's wire field number is the type, as in the schema's `oneof`.
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.interchange.chakra import wire
from sim.units import format_bytes


class NodeType(IntEnum):
    """What a node does."""

    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


COMM_TYPES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
    "reduce_scatter_block", "barrier",
)  # fmt: skip
#: number of the value's field in AttributeProto -> how it is read (scalars; the number after each is its list)
_SCALARS = {
    3: "double", 5: "float", 7: "int", 9: "int", 11: "uint", 13: "uint", 15: "sint", 17: "sint", 19: "fixed32", 21: "fixed64",
    23: "sfixed32", 25: "sfixed64", 27: "bool", 29: "string", 31: "bytes",
}  # fmt: skip
_FORMATS = {"double": "<d", "float": "<f", "fixed32": "<I", "fixed64": "<Q", "sfixed32": "<i", "sfixed64": "<q"}
_VERSION = "0.0.4"


class Node(msgspec.Struct):
    """One node; `kinds` remembers the wire field of each attribute, so that a file is written back as it was."""

    id: int
    name: str = ""
    type: int = 0
    ctrl_deps: list[int] = []
    data_deps: list[int] = []
    start_us: int = 0
    duration_us: int = 0
    attributes: dict[str, Any] = {}
    kinds: dict[str, int] = {}
    inputs: bytes = b""  # IOInfo messages, kept packed: see `io_info`
    outputs: bytes = b""


class Trace(msgspec.Struct):
    """All nodes of one rank's file."""

    file: str
    version: str
    nodes: list[Node]
    notes: list[str] = []
    metadata: bytes = b""  # the first message as it was


def looks_like(content: bytes) -> bool:
    """Whether the content begins with a Chakra metadata message and a node (there is no magic number)."""
    if not content or content[:1] in b"{[<":
        return False
    seen = 0
    try:
        for message in wire.messages(content[: 2**20]):
            known = {1, 2} if seen == 0 else set(range(1, 11))
            if any(number not in known for number, _, _ in wire.fields(message)):
                return False
            seen += 1
            if seen == 3:
                break
    except wire.WireError:
        return seen >= 2
    return seen >= 1 and len(content) > 1


def read_trace(content: bytes, file: str) -> Trace:
    """Nodes of a protobuf file, or of the JSON dialect. A cut file gives its whole nodes and a note.

    Raises InputError when the content is neither, or holds no node.
    """
    if content.lstrip()[:1] == b"{":
        return _read_json(content, file)
    nodes: list[Node] = []
    notes: list[str] = []
    metadata: bytes | None = None
    version = ""
    try:
        for message in wire.messages(content):
            if metadata is None:
                metadata, version = message, _version(message)
                continue
            nodes.append(_node(message))
    except (wire.WireError, UnicodeDecodeError, struct.error) as error:
        if not nodes:
            remedy = "expected Chakra schema 0.0.4 (length-delimited protobuf); 0.0.1 files are another format"
            raise InputError(Fault(what=f"is no Chakra trace: {error}", remedy=remedy, file=file)) from error
        notes.append(f"damaged file: {len(nodes):,} whole nodes of {format_bytes(len(content))} read ({error})")
    if not nodes:
        raise InputError(Fault(what="holds no node", remedy="expected a Chakra trace", file=file))
    return Trace(file, version, nodes, notes, metadata or b"")


def _version(message: bytes) -> str:
    return next((bytes(v).decode() for number, _, v in wire.fields(message) if number == 1 and isinstance(v, bytes)), "")


def _node(message: bytes) -> Node:
    node = Node(0)
    for number, _, value in wire.fields(message):
        if isinstance(value, int):
            if number == 1:
                node.id = value
            elif number == 3:
                node.type = value
            elif number == 6:
                node.start_us = value
            elif number == 7:
                node.duration_us = value
        elif number == 2:
            node.name = value.decode("utf-8", errors="replace")
        elif number == 8:
            node.inputs = value
        elif number == 9:
            node.outputs = value
        elif number == 10:
            _attribute(value, node)
        if number == 4:
            node.ctrl_deps.extend(wire.varints(value))
        elif number == 5:
            node.data_deps.extend(wire.varints(value))
    return node


def _attribute(message: bytes, node: Node) -> None:
    name, value, kind = "", None, 0
    for number, _, raw in wire.fields(message):
        if number == 1 and isinstance(raw, bytes):
            name = raw.decode("utf-8", errors="replace")
        elif number in _SCALARS:
            value, kind = _scalar(_SCALARS[number], raw), number
        elif number - 1 in _SCALARS:
            value, kind = _list(_SCALARS[number - 1], raw), number
    node.attributes[name] = value
    node.kinds[name] = kind


def _scalar(kind: str, raw: int | bytes) -> Any:
    if isinstance(raw, int):
        if kind == "bool":
            return bool(raw)
        return wire.signed(raw) if kind == "int" else wire.zigzag(raw) if kind == "sint" else raw
    if kind in _FORMATS:
        return struct.unpack(_FORMATS[kind], raw)[0]
    return raw.decode("utf-8", errors="replace") if kind == "string" else raw


def _list(kind: str, raw: int | bytes) -> list[Any]:
    """A list message: its repeated field 1, packed or not."""
    found: list[Any] = []
    for _, wire_type, value in wire.fields(raw if isinstance(raw, bytes) else b""):
        if kind in _FORMATS and isinstance(value, bytes):
            width = struct.calcsize(_FORMATS[kind])
            found += [struct.unpack(_FORMATS[kind], value[i : i + width])[0] for i in range(0, len(value), width)]
        elif kind in ("string", "bytes"):
            found.append(_scalar(kind, value))
        elif wire_type in (wire.VARINT, wire.BYTES):
            found += [_scalar(kind, item) for item in wire.varints(value)]
    return found


def io_info(message: bytes) -> tuple[str, str, str]:
    """(values, shapes, types) of an IOInfo message: Python literals as text."""
    found = {
        number: value.decode("utf-8", errors="replace") for number, _, value in wire.fields(message) if isinstance(value, bytes)
    }
    return found.get(1, ""), found.get(2, ""), found.get(3, "")


def write_trace(trace: Trace) -> bytes:
    """The protobuf file of a trace."""
    head = trace.metadata or wire.text(1, trace.version or _VERSION)
    return wire.framed(head) + b"".join(wire.framed(_encoded(node)) for node in trace.nodes)


def _encoded(node: Node) -> bytes:
    parts = [wire.integer(1, node.id)] if node.id else []
    if node.name:
        parts.append(wire.text(2, node.name))
    parts.append(wire.integer(3, node.type))
    parts.append(wire.packed(4, node.ctrl_deps))
    parts.append(wire.packed(5, node.data_deps))
    if node.start_us:
        parts.append(wire.integer(6, node.start_us))
    if node.duration_us:
        parts.append(wire.integer(7, node.duration_us))
    parts += [wire.chunk(number, io) for number, io in ((8, node.inputs), (9, node.outputs)) if io]
    for name, value in node.attributes.items():
        parts.append(wire.chunk(10, wire.text(1, name) + _value(value, node.kinds.get(name, 0))))
    return b"".join(parts)


def _value(value: Any, kind: int) -> bytes:
    """The value field of an attribute; without a remembered kind: bool, string, double, uint64 (as the feeder expects)."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return wire.integer(kind or 27, int(value))
    if isinstance(value, str):
        return wire.text(kind or 29, value)
    if isinstance(value, float):
        return wire.double(3, value) if kind in (0, 3) else wire.varint(kind << 3 | wire.FIXED32) + struct.pack("<f", value)
    if isinstance(value, int):
        name = _SCALARS.get(kind, "uint")
        if name in _FORMATS:
            form = wire.FIXED64 if name.endswith("64") else wire.FIXED32
            return wire.varint(kind << 3 | form) + struct.pack(_FORMATS[name], value)
        return wire.integer(kind or 13, (value << 1) ^ (value >> 63) if name == "sint" else value)
    if isinstance(value, list):
        return wire.chunk(kind or 14, _list_body(value, _SCALARS.get((kind or 14) - 1, "uint")))
    return wire.chunk(kind or 31, bytes(value))


def _list_body(values: list[Any], name: str) -> bytes:
    if name in ("string", "bytes"):
        return b"".join(wire.text(1, v) if isinstance(v, str) else wire.chunk(1, v) for v in values)
    if name in _FORMATS:
        return wire.chunk(1, b"".join(struct.pack(_FORMATS[name], v) for v in values)) if values else b""
    return wire.packed(1, [(v << 1) ^ (v >> 63) if name == "sint" else int(v) for v in values])


def _read_json(content: bytes, file: str) -> Trace:
    """The JSON dialect of the Chakra feeder: `workload_graph` of {Id, Name, NodeType, ctrlDeps, data_deps, runtime, ...}."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(Fault(what=f"is not JSON: {error}", file=file)) from error
    graph = document.get("workload_graph") if isinstance(document, dict) else None
    if not isinstance(graph, list):
        raise InputError(Fault(what="has no 'workload_graph'", remedy="expected the JSON dialect of Chakra", file=file))
    nodes = []
    for entry in graph:
        known = {str(key).lower().replace("_", ""): value for key, value in entry.items()} if isinstance(entry, dict) else {}
        if not isinstance(known.get("id"), int):
            raise InputError(Fault(what=f"node without an id: {str(entry)[:80]}", file=file))
        rest = {
            key: value
            for key, value in entry.items()
            if key.lower() in ("is_cpu_op", "comm_size", "comm_type", "num_ops", "tensor_size")
        }
        nodes.append(
            Node(
                known["id"],
                str(known.get("name", "")),
                _whole(known.get("nodetype")),
                _wholes(known.get("ctrldeps")),
                _wholes(known.get("datadeps")),
                0,
                _whole(known.get("runtime")),
                rest,
            )
        )
    if not nodes:
        raise InputError(Fault(what="holds no node", file=file))
    return Trace(file, "json", nodes)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _wholes(value: Any) -> list[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []
