"""Nodes of PyTorch execution traces, and what stands in them: tensors, shapes, attributes.

Schema 1.0.1 has flat fields; later ones nest them and put the rest into `attrs`. A trace that Chakra's linker joined with a
profile has times too: nodes of GPU work with `cat`, `ts`, `exclusive_dur` (us) and `stream`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.interchange import kernel_class
from sim.interchange.kernel_class import Shapes
from sim.units import format_bytes

_NODES = re.compile(r'"nodes"\s*:\s*\[')
_SCHEMA = re.compile(r'"schema"\s*:\s*"([^"]{0,80})"')
_BETWEEN = re.compile(r"[\s,]*")
_TENSOR = re.compile(r"Tensor\(([^)]*)\)")
#: devices that are GPUs; "hpu" and "npu" are accelerators of other makers
GPUS = frozenset({"cuda", "hip", "xpu", "hpu", "npu"})


class Node(msgspec.Struct):
    """One node of either schema."""

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
    cat: str | None = None
    ts: float | None = None
    exclusive_dur: float | None = None
    inclusive_dur: float | None = None
    stream: int | None = None

    @property
    def above(self) -> int:
        """Id of the node around this one; -1 = none."""
        if self.parent is not None:
            return self.parent
        deps = self.ctrl_deps
        return deps[0] if isinstance(deps, list) and deps else deps if isinstance(deps, int) else -1

    @property
    def seconds(self) -> float:
        """Recorded duration, without what ran inside it; 0 = not recorded."""
        return max(0.0, self.exclusive_dur or 0.0) * 1e-6

    def attribute(self, name: str) -> Any:
        """Value of an attribute, None if it has none of that name."""
        return next((item.get("value") for item in self.attrs if item.get("name") == name), None)


class Document(msgspec.Struct):
    """One rank's file; `notes` say what of it was lost."""

    nodes: list[Node]
    schema: str = ""
    notes: list[str] = []


class Tensor(msgspec.Struct, frozen=True):
    """A tensor that a node reads or writes; `storage` tells the memory that it is a view of."""

    storage: tuple[int, str]
    size_bytes: float
    device: str

    @property
    def is_on_gpu(self) -> bool:
        """Whether it lies in a GPU's memory."""
        return self.device.split(":")[0] in GPUS


def looks_like(content: bytes) -> bool:
    """Whether the content is an execution trace: an object with "schema" and "nodes"."""
    head = content[:2048]
    is_first = head.lstrip()[:1] == b"{" and b'"schema"' in head
    return is_first and b'"nodes"' in content and b'"traceEvents"' not in content


def read_document(content: bytes, file: str) -> Document:
    """The nodes of a file in the order of their ids; a cut file gives its whole ones. Raises InputError for other JSON."""
    try:
        document = msgspec.json.decode(content, type=Document)
        document.notes = []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        document = _salvaged(content, file, error)
    document.nodes.sort(key=lambda node: node.id)
    return document


def _salvaged(content: bytes, file: str, error: Exception) -> Document:
    """Whole nodes of a damaged file, one by one; nodes that are none are left out and counted."""
    text = content.decode("utf-8", errors="replace")
    start = _NODES.search(text)
    decoder = json.JSONDecoder(strict=False)
    nodes: list[Node] = []
    wrong, at = 0, start.end() if start else len(text)
    while (between := _BETWEEN.match(text, at)) and text[between.end() : between.end() + 1] == "{":
        try:
            value, at = decoder.raw_decode(text, between.end())
        except (json.JSONDecodeError, RecursionError):
            break
        try:
            nodes.append(msgspec.convert(value, Node))
        except msgspec.ValidationError:
            wrong += 1
    if not nodes:
        raise InputError(Fault(what=f"is no execution trace: {error}", remedy="copy it again", file=file)) from error
    schema = _SCHEMA.search(text)
    notes = [f"nodes of another form (left out): {wrong}"] if wrong else []
    if not text[at:].lstrip().startswith("]"):
        lost = 1.0 - at / len(text)
        notes.append(f"damaged file: {len(nodes):,} whole nodes read, the last {lost:.1%} of {format_bytes(len(content))} lost")
    return Document(nodes, schema[1] if schema else "", notes)


def values_of(side: Any) -> list[Any]:
    """Values of a node's inputs or outputs, in either schema."""
    values = side.get("values") if isinstance(side, dict) else side
    return values if isinstance(values, list) else []


def tensors_of(side: Any) -> list[Tensor]:
    """Tensors among the values: [tensor id, storage id, offset, elements, bytes per element, device], also in lists."""
    found: list[Tensor] = []
    for value in values_of(side):
        if not isinstance(value, list) or not value:
            continue
        if isinstance(value[0], list):
            found += tensors_of(value)
        elif len(value) == 6 and isinstance(value[5], str) and all(isinstance(v, int) for v in value[:5]):
            found.append(Tensor((value[1], value[5]), float(value[3]) * value[4], value[5]))
    return found


def shapes_of(node: Node) -> Shapes:
    """Dimensions, element types and scalars of a node's inputs."""
    side = node.inputs
    dims = side.get("shapes") if isinstance(side, dict) else node.input_shapes
    types = side.get("types") if isinstance(side, dict) else node.input_types
    plain = [match[1] if (match := _TENSOR.search(str(item))) else str(item) for item in types or ()]
    scalars = [str(value) for value in values_of(side)]
    return kernel_class.shapes_from(dims, plain, scalars)
