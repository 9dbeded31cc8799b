"""One entry of the `placement:` block: a tensor class, or a range of its layers, and where it lives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sim.config.placement_shares import share_from, shares_from
from sim.config.validation import FaultList, fault_of, refuse_unknown, suggestion
from sim.config.yaml_source import Document, NodePath, describe
from sim.errors import Fault, InputError
from sim.laws.skew import PAGE_BYTES
from sim.placement.plan import Entry
from sim.placement.registry import EXPLICIT, OPTIONS, POLICIES
from sim.records import TensorClass
from sim.units import parse

#: keys of an entry that are not tier names
_UNEVEN_KEYS = ("skew", "granule", "hint")
_POLICY_KEYS = ("policy", "options", "layers", "shared", *_UNEVEN_KEYS)
_ENTRY_KEYS = (*_POLICY_KEYS, "shares", "weights")
#: which items of an unevenly accessed class its fastest tier holds; the first is the default
_HINTS = ("none", "right", "wrong")
#: beyond this exponent a handful of items takes everything
_MOST_SKEW = 3.0
_LAYERS = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


def layer_range(raw: object) -> tuple[int, int]:
    """``"0-19"`` -> (0, 19), ``7`` -> (7, 7); ValueError with the remedy."""
    match = _LAYERS.fullmatch(str(raw)) if isinstance(raw, (str, int)) and not isinstance(raw, bool) else None
    if not match:
        raise ValueError(f"expected a range of layers, got {describe(raw)}, write it as '0-19'")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"the range of layers {raw!r} is empty, write the smaller number first")
    return first, last


def entries_from(tensor_class: TensorClass, raw: object, document: Document, path: NodePath) -> list[Entry]:
    """The entries of one tensor class: one, or a list of them by layers. InputError with every fault."""
    if not isinstance(raw, list) or not raw:
        return [_entry(tensor_class, raw, document, path)]
    entries: list[Entry] = []
    faults = FaultList()
    for index, item in enumerate(raw):
        with faults.collect():
            entries.append(_entry(tensor_class, item, document, (*path, index)))
    faults.stop()
    return entries


def _entry(tensor_class: TensorClass, raw: object, document: Document, path: NodePath) -> Entry:
    if isinstance(raw, str):
        return Entry(tensor_class=tensor_class, shares={raw: 1.0})
    if not isinstance(raw, Mapping) or not raw:
        what = f"expected a tier or shares of tiers, got {describe(raw)}"
        raise InputError(document.fault(path, what, "for example dram, or {dram: 60%, cxl0: 40%}"))
    faults, fields = FaultList(), dict[str, Any]()
    policy = str(raw.get("policy", "interleave"))
    with faults.collect():
        fields["layers"] = _layers(raw, document, path)
    faults += _policy_faults(raw, document, path)
    with faults.collect():
        fields["options"] = policy_options(raw.get("options", {}), policy, document, (*path, "options"))
    if policy in POLICIES and (given := [key for key in raw if key not in _POLICY_KEYS]):
        remedy = "leave one of the two out; options.tiers names the tiers it may use"
        faults.append(document.fault((*path, given[0]), f"{policy} decides the shares itself", remedy))
    with faults.collect():
        fields["shared"] = share_from(raw.get("shared", "0%"), document, (*path, "shared"))
    with faults.collect():
        fields |= _uneven(raw, policy, document, path)
    with faults.collect():
        fields["shares"] = shares_from(raw, policy, _ENTRY_KEYS, document, path)
    faults.stop()
    return Entry(tensor_class=tensor_class, policy=policy, **fields)


def _layers(raw: Mapping[str, object], document: Document, path: NodePath) -> tuple[int, int] | None:
    if "layers" not in raw:
        return None
    try:
        return layer_range(raw["layers"])
    except ValueError as error:
        raise InputError(fault_of(error, document, (*path, "layers"))) from None


def _policy_faults(raw: Mapping[str, object], document: Document, path: NodePath) -> list[Fault]:
    policy, known = raw.get("policy", "interleave"), (*EXPLICIT, *POLICIES)
    if not isinstance(policy, str):
        return [document.fault((*path, "policy"), f"expected the name of a policy, got {describe(policy)}")]
    if policy in known:
        return []
    remedy = suggestion(policy, known) or f"use one of {', '.join(known)}"
    return [document.fault((*path, "policy"), f"unknown placement policy {policy!r}", remedy)]


def _uneven(raw: Mapping[str, object], policy: str, document: Document, path: NodePath) -> dict[str, Any]:
    """`skew`, `granule` and `hint` of an entry as fields of it."""
    given = [key for key in _UNEVEN_KEYS if key in raw]
    if not given:
        return {}
    faults: list[Fault] = []
    skew, hint, granule = raw.get("skew", 0.0), raw.get("hint", _HINTS[0]), PAGE_BYTES
    if isinstance(skew, bool) or not isinstance(skew, (int, float)) or not 0.0 <= skew <= _MOST_SKEW:
        what = f"expected the exponent of the accesses (Zipf), got {describe(skew)}"
        faults.append(document.fault((*path, "skew"), what, f"a number from 0 (all alike) to {_MOST_SKEW:g}"))
    elif not skew:
        faults.append(document.fault((*path, given[0]), f"{given[0]} without unevenness says nothing", "add skew: 0.8"))
    if hint not in _HINTS:
        faults.append(document.fault((*path, "hint"), f"got {describe(hint)}", f"use one of {', '.join(_HINTS)}"))
    elif hint != _HINTS[0] and policy == "hot_cold":
        faults.append(document.fault((*path, "hint"), "hot_cold finds the hot pages itself", "remove the hint"))
    if "granule" in raw:
        try:
            granule = parse(raw["granule"], "bytes")
        except ValueError as error:
            faults.append(fault_of(error, document, (*path, "granule")))
        else:
            if granule < 64.0:
                faults.append(
                    document.fault((*path, "granule"), f"got {describe(raw['granule'])}", "at least one line of 64 B")
                )
    if "layers" in raw or policy == "by_layer":
        what = "uneven accesses are of a class as a whole, not of a range of its layers"
        faults.append(document.fault((*path, given[0]), what, "remove the layers, or the skew"))
    if faults:
        raise InputError(faults)
    return {"skew": float(skew), "granule_bytes": granule, "hint": hint}  # type: ignore[arg-type]


def policy_options(raw: object, policy: str, document: Document, path: NodePath) -> dict[str, object]:
    """The options of a policy in SI; InputError for those that it does not have or that are out of range."""
    if not isinstance(raw, Mapping):
        raise InputError(document.fault(path, f"expected a mapping, got {describe(raw)}"))
    known = OPTIONS.get(policy, {})
    faults = refuse_unknown(raw, ("tiers", *known), document, path)
    found: dict[str, object] = {"tiers": raw["tiers"]} if "tiers" in raw else {}
    for key, (dimension, name, least) in known.items():
        if key not in raw:
            continue
        value = raw[key]
        try:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if dimension == "number" and not is_number:
                raise ValueError(f"expected a number, got {describe(value)}")
            found[name] = number = float(value) if dimension == "number" else parse(value, dimension)
        except ValueError as error:
            faults.append(fault_of(error, document, (*path, key)))
            continue
        if number < least or (dimension == "fraction" and number >= 1.0):
            faults.append(document.fault((*path, key), f"out of range, got {describe(value)}", f"at least {least:g}"))
    if faults:
        raise InputError(faults)
    return found
