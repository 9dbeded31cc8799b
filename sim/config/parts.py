"""The part catalogue: `topologies/parts/*.yaml` to part objects, every number with its source.

A family file holds `sources:` (key -> kind, cite), `classes:` (name -> constants that parts of a class share) and `parts:`
(name -> part). A value is written plainly (then the part's or class's `source` stands for it) or as `{value, source}`, with
`otherwise: {value, source}` for what other documents say where its own measurements are held out. Only the blocks of the
parts asked for are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from sim.config.locate import data_folder
from sim.config.part_block import part_block
from sim.config.priors import prior_of
from sim.config.validation import suggestion, validate
from sim.config.yaml_source import Document, NodePath, parse_yaml
from sim.errors import Fault, InputError
from sim.held_out import held_out, is_held_out
from sim.topology.parts import KINDS, STRICT, Part
from sim.units import Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a number comes from, and how far it can be trusted."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kind: Annotated[Literal["datasheet", "microbenchmark", "fit", "assumed"], Doc("what stands behind the number")]
    cite: Annotated[str, Doc("document, table, row")]
    url: Annotated[str, Doc("where it can be read")] = ""
    fitted_on: Annotated[tuple[str, ...], Doc("ids of the measurements that a fit used")] = ()
    interval: Annotated[str, Doc("plausible range of an assumed number, for example '+-15%'")] = ""

    def __str__(self) -> str:
        fitted = f" (fitted on {', '.join(self.fitted_on)})" if self.fitted_on else ""
        interval = f" ({self.interval})" if self.interval else ""
        return f"{self.kind}: {self.cite}{fitted}{interval}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Parts by name, and for each the citation of every number (field path -> citation)."""

    parts: dict[str, Part] = field(default_factory=dict)
    sources: dict[str, dict[str, str]] = field(default_factory=dict)
    source_keys: dict[str, dict[str, Source]] = field(default_factory=dict)  # part -> field path -> source


#: key of the source of numbers that a derived part states without one
_WRITTEN = "written"
_BLOCK = re.compile(r"^  ([A-Za-z0-9][\w.+-]*):", re.MULTILINE)


@cache
def _families() -> dict[str, tuple[Path, str, dict[str, tuple[int, int]]]]:
    """Family file -> (path, text, part name -> span of its block in the text)."""
    found = {}
    for path in sorted((data_folder() / "topologies" / "parts").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        start = text.find("\nparts:")
        heads = [(match[1], match.start()) for match in _BLOCK.finditer(text, max(start, 0))] if start >= 0 else []
        ends = [position for _name, position in heads[1:]] + [len(text)]
        spans = {name: (begin, end) for (name, begin), end in zip(heads, ends, strict=True)}
        found[path.stem] = (path, text, spans)
    return found


@cache
def part_names() -> tuple[str, ...]:
    """Names of all parts of the catalogue, by family file, in file order."""
    return tuple(name for _path, _text, spans in _families().values() for name in spans)


def load_parts(names: Iterable[str] | None = None, *, inline: Mapping[str, Part] | None = None) -> Catalogue:
    """Parts by name with all parts that they name in turn; the whole catalogue when `names` is None.

    `inline` parts of a topology file go before the catalogue's. Raises InputError for an unknown part (with a
    suggestion) and for every fault of the family files that were opened.
    """
    catalogue = Catalogue()
    inline = inline or {}
    pending = list(part_names() if names is None else names)
    while pending:
        name = pending.pop(0)
        if name in catalogue.parts:
            continue
        if name in inline:
            catalogue.parts[name] = inline[name]
            catalogue.sources[name] = {}
        else:
            _load_one(name, catalogue)
        pending.extend(named_parts(catalogue.parts[name]))
    return catalogue


def named_parts(part: Part) -> list[str]:
    """Names of the parts that a part refers to."""
    names = [
        port.part for key in ("pcie", "cxl", "sockets", "c2c", "fabric", "link", "port") if (port := getattr(part, key, None))
    ]
    memory = getattr(part, "memory", None)
    if memory is not None:
        names.append(memory if isinstance(memory, str) else memory.part)
    if cpu := getattr(part, "cpu", ""):
        names.append(cpu)
    return names


@cache
def _head(family: str) -> Document:
    """Sources and classes of a family file, without its parts."""
    path, text, _spans = _families()[family]
    return parse_yaml(text[: text.find("\nparts:") + 1], str(path))


@cache
def _sliced(name: str) -> Document | None:
    """The family's head with the block of one part: line numbers stay, and the other parts cost nothing."""
    for family, (path, text, spans) in _families().items():
        if name in spans:
            begin, end = spans[name]
            head = _head(family)
            block = parse_yaml("\n" * (text.count("\n", 0, begin) - 1) + "parts:\n" + text[begin:end], str(path))
            return Document(file=str(path), data=head.data | block.data, positions={**head.positions, **block.positions})
    return None


def _load_one(name: str, catalogue: Catalogue) -> None:
    part, keys, cited = _loaded(name, held_out())
    catalogue.parts[name] = part
    catalogue.source_keys[name] = dict(keys)
    catalogue.sources[name] = dict(cited)


@cache
def _loaded(name: str, _held_out: frozenset[str]) -> tuple[Part, Mapping[str, Source], Mapping[str, str]]:
    """A part of the catalogue while these measurements are held out, the source of each of its numbers, and the citations."""
    document = _sliced(name)
    if document is None:
        raise InputError(Fault(what=f"unknown part {name!r}", remedy=suggestion(name, part_names())))
    part, keys = read_part(document.data["parts"][name], document, ("parts", name), _family_sources(document.file))
    return part, keys, {field: str(source) for field, source in keys.items()}


@cache
def _family_sources(file: str) -> dict[str, Source]:
    return _sources(_head(Path(file).stem))


def _sources(document: Document) -> dict[str, Source]:
    raw = document.data.get("sources")
    if not isinstance(raw, dict):
        raise InputError(document.fault(("sources",), "missing table 'sources'", "add it: key -> {kind, cite}"))
    return {key: validate(Source, value, document, ("sources", key)) for key, value in raw.items()}


def read_part(raw: object, document: Document, path: NodePath, table: Mapping[str, Source]) -> tuple[Part, dict[str, Source]]:
    """One part and the source of each of its numbers. Raises InputError with all faults."""
    if isinstance(raw, dict) and "base" in raw:
        return _derived(raw, document, path, table)
    if not isinstance(raw, dict) or raw.get("kind") not in KINDS:
        got = raw.get("kind") if isinstance(raw, dict) else raw
        raise InputError(document.fault(path, f"unknown kind of part {got!r}", f"one of {', '.join(KINDS)}"))
    faults: list[Fault] = []
    keys: dict[str, Source] = {}
    default = raw.get("source")
    kind = " ".join(str(raw[key]) for key in ("type", "kind") if key in raw)  # "cxl link": what a prior is chosen by
    own = {key: value for key, value in raw.items() if key not in ("source", "class")}
    plain = _unwrap(own, default, path, document, table, keys, faults, kind)
    for name in _listed(raw.get("class")):
        shared = document.data.get("classes", {}).get(name)
        if not isinstance(shared, dict):
            known = document.data.get("classes", {})
            faults.append(document.fault((*path, "class"), f"unknown class {name!r}", suggestion(name, known)))
            continue
        missing = {key: value for key, value in shared.items() if key not in plain and key != "source"}
        plain |= _unwrap(missing, shared.get("source"), ("classes", name), document, table, keys, faults, kind)
    if faults:
        raise InputError(faults)
    part: Part = validate(KINDS[raw["kind"]], plain, document, path)
    return part, keys


def _derived(
    raw: Mapping[str, Any], document: Document, path: NodePath, table: Mapping[str, Source]
) -> tuple[Part, dict[str, Source]]:
    """A part of the catalogue with single numbers replaced; those without a source are assumptions of who wrote them."""
    try:
        base, known, _ = _loaded(str(raw["base"]), held_out())
    except InputError as error:
        raise InputError([document.fault((*path, "base"), fault.what, fault.remedy) for fault in error.faults]) from None
    kind = next(name for name, part_type in KINDS.items() if isinstance(base, part_type))
    if (named := raw.get("kind", kind)) != kind:
        what = f"{raw['base']!r} is a {kind}, not a {named}"
        raise InputError(document.fault((*path, "kind"), what, "leave out kind, or name another base"))
    faults: list[Fault] = []
    keys: dict[str, Source] = {}
    own = {key: value for key, value in raw.items() if key not in ("base", "kind", "source")}
    sources = {_WRITTEN: Source(kind="assumed", cite=f"written in place of the number of {raw['base']}"), **table}
    changes = _unwrap(own, raw.get("source", _WRITTEN), path, document, sources, keys, faults, kind)
    if faults:
        raise InputError(faults)
    block = part_block(base) | {"kind": kind, "title": f"{base.title}, changed"}
    for key, value in changes.items():
        _replace(block, str(key).split("."), value)
    part: Part = validate(KINDS[kind], block, document, path)
    return part, {**known, **keys}


def _replace(block: dict[str, Any], keys: list[str], value: Any) -> None:
    """Write a value at a dotted path; a mapping changes what it names and leaves the rest."""
    first, *rest = keys
    if isinstance(value, dict) and isinstance(block.get(first), dict) and not rest:
        for key, item in value.items():
            _replace(block[first], str(key).split("."), item)
    elif rest:
        _replace(block.setdefault(first, {}), rest, value)
    else:
        block[first] = value


def _listed(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [] if value is None else [str(value)]


def _unwrap(
    raw: Any,
    default: str | None,
    path: NodePath,
    document: Document,
    table: Mapping[str, Source],
    keys: dict[str, Source],
    faults: list[Fault],
    kind: str,
) -> Any:
    """The value without `{value, source}` wrappers; fills `keys` with the source of every number."""
    if isinstance(raw, dict) and "value" in raw:
        if extra := sorted(set(raw) - {"value", "source", "otherwise"}):
            remedy = "a value takes 'value', 'source' and 'otherwise'"
            faults.append(document.fault((*path, extra[0]), f"unknown key {extra[0]!r}", remedy))
        own = raw.get("source", default)
        if "otherwise" in raw and own and own in table and is_held_out(table[own].fitted_on):
            return _unwrap(raw["otherwise"], None, path, document, table, keys, faults, kind)
        return _unwrap(raw["value"], own, path, document, table, keys, faults, kind)
    if isinstance(raw, dict):
        own = raw.get("source", default)
        return {
            key: _unwrap(value, own, (*path, key), document, table, keys, faults, kind)
            for key, value in raw.items()
            if key != "source"
        }
    if isinstance(raw, list):
        return [_unwrap(value, default, (*path, index), document, table, keys, faults, kind) for index, value in enumerate(raw)]
    is_number = isinstance(raw, (int, float)) or (isinstance(raw, str) and raw[:1].isdigit() and " " in raw)
    if is_number and not isinstance(raw, bool):
        if default is None:
            faults.append(
                document.fault(path, f"the number {raw!r} has no source", "write source: KEY on the part or on the value")
            )
        elif default not in table:
            near = get_close_matches(default, table, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"sources are {', '.join(table)}"
            faults.append(document.fault(path, f"unknown source {default!r}", remedy))
        else:
            source = table[default]
            if is_held_out(source.fitted_on):
                raw, why = prior_of(kind, path[2:])
                source = Source(kind="assumed", cite=f"without its own measurements: {why}")
            keys[".".join(str(key) for key in path[2:])] = source
    return raw
