"""The `placement:` block: where each tensor class lives, in every form that a person may write.

weights: gpu                                        # one tier (role or name)
optimizer_states: {dram: 60%, cxl0: 40%}            # interleaved page by page
gradients: {policy: by_layer, shares: {dram: 50%, cxl0: 50%}}
activations: {layers: 0-19, dram: 100%}             # the other layers stay on the GPU
kv_cache: {policy: weighted_interleave, weights: {dram: 3, cxl0: 1}}
optimizer_states: {dram: rest, cxl0: 20%}           # what the others leave: a sweep or search can vary one share
weights: {dram: 25%, cxl0: 75%, skew: 0.8, granule: 8 MiB, hint: right}   # uneven accesses: the hottest experts in DRAM
weights: {pool0: 100%, shared: 40%}                 # that part is there once for all jobs that share it
weights: [{layers: 0-9, gpu: 100%}, {layers: 10-39, dram: 100%}]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sim.config.validation import refuse_unknown, suggestion
from sim.config.yaml_source import Document, NodePath, describe
from sim.errors import Fault, InputError
from sim.laws.paging import REPLACEMENTS
from sim.laws.skew import PAGE_BYTES
from sim.placement.plan import Entry, Placement
from sim.placement.registry import EXPLICIT, OPTIONS, POLICIES
from sim.records import TensorClass
from sim.units import parse

#: keys of an entry that are not tier names
_UNEVEN_KEYS = ("skew", "granule", "hint")
_POLICY_KEYS = ("policy", "options", "layers", "shared", *_UNEVEN_KEYS)
_ENTRY_KEYS = (*_POLICY_KEYS, "shares", "weights")
#: which items of an unevenly accessed class its fastest tier holds; the first is the default
HINTS = ("none", "right", "wrong")
#: beyond this exponent a handful of items takes everything
_MOST_SKEW = 3.0
#: policies whose shares come from `weights` N:M
_WEIGHTED = "weighted_interleave"
_CLASSES = tuple(tensor_class.value for tensor_class in TensorClass)
#: answers to a host tier that is too small, and how its pages are replaced; the first is the default
_OVERFLOW = {"overflow": ("fail", "swap", "spill"), "replacement": REPLACEMENTS}
#: what a policy for the whole block places unless told otherwise
_OPTIMIZER_CLASSES = (TensorClass.OPTIMIZER_STATES.value,)
#: share of the tier that takes what the others leave
_REST = "rest"
_LAYERS = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


def placement_from(raw: object, document: Document, path: NodePath, *, is_optimizer_offloaded: bool = False) -> Placement:
    """A Placement from the block that stands at `path`; `is_optimizer_offloaded` is `optimizer.offload: true`.

    Raises InputError with every fault; tier names are checked later, against the machine.
    """
    if raw is None:
        raw = {}
    if isinstance(raw, str):
        raw = {"policy": raw}
    if not isinstance(raw, Mapping):
        what = f"expected tensor classes and their tiers, got {describe(raw)}"
        raise InputError(document.fault(path, what, "for example {optimizer_states: dram}"))
    faults = refuse_unknown(raw, (*_CLASSES, "policy", "options", *_OVERFLOW), document, path)
    entries, found = _block_policy(raw, document, path)
    faults += found
    overflow = {key: raw.get(key, choices[0]) for key, choices in _OVERFLOW.items()}
    for key, value in overflow.items():
        if value not in _OVERFLOW[key]:
            faults.append(document.fault((*path, key), f"got {describe(value)}", f"use one of {', '.join(_OVERFLOW[key])}"))
    for name in _CLASSES:
        if name not in raw:
            continue
        here = (*path, name)
        try:
            entries += _entries(TensorClass(name), raw[name], document, here)
        except InputError as error:
            faults += error.faults
    if is_optimizer_offloaded and not faults:
        faults += _offload_faults(entries, document, path)
        if not any(entry.tensor_class is TensorClass.OPTIMIZER_STATES for entry in entries):
            entries.append(Entry(tensor_class=TensorClass.OPTIMIZER_STATES, shares={"dram": 1.0}))
    if faults:
        raise InputError(faults)
    return Placement(entries=tuple(entries), overflow=str(overflow["overflow"]), replacement=str(overflow["replacement"]))


def _block_policy(raw: Mapping[str, object], document: Document, path: NodePath) -> tuple[list[Entry], list[Fault]]:
    """Entries of `{policy: NAME, options: {...}}` at the top: it places what an offload plan keeps on the host.

    These are the optimizer's states, unless `options.classes` lists others; a class with an entry of its own is left to it.
    """
    if "policy" not in raw:
        if "options" in raw:
            return [], [document.fault((*path, "options"), "options without a policy", "add policy: NAME beside them")]
        return [], []
    name, options = raw["policy"], raw.get("options", {})
    if not isinstance(name, str) or name in EXPLICIT:
        what = f"expected the name of a policy that decides by itself, got {describe(name)}"
        return [], [document.fault((*path, "policy"), what, f"use one of {', '.join(POLICIES)}")]
    if name not in POLICIES:
        what = f"unknown placement policy {name!r}"
        return [], [document.fault((*path, "policy"), what, suggestion(name, POLICIES, "use one of"))]
    if not isinstance(options, Mapping):
        return [], [document.fault((*path, "options"), f"expected a mapping, got {describe(options)}")]
    classes = options.get("classes", list(_OPTIMIZER_CLASSES))
    if not isinstance(classes, list) or not classes or any(item not in _CLASSES for item in classes):
        what = f"expected a list of tensor classes, got {describe(classes)}"
        return [], [document.fault((*path, "options"), what, f"use any of {', '.join(_CLASSES)}")]
    rest = {key: value for key, value in options.items() if key != "classes"}
    try:
        rest = _options(rest, name, document, (*path, "options"))
    except InputError as error:
        return [], list(error.faults)
    return [
        Entry(tensor_class=TensorClass(item), shares={}, policy=name, options=rest) for item in classes if item not in raw
    ], []


def layer_range(raw: object) -> tuple[int, int]:
    """``"0-19"`` -> (0, 19), ``7`` -> (7, 7); ValueError with the remedy."""
    match = _LAYERS.fullmatch(str(raw)) if isinstance(raw, (str, int)) and not isinstance(raw, bool) else None
    if not match:
        raise ValueError(f"expected a range of layers, got {describe(raw)}, write it as '0-19'")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"the range of layers {raw!r} is empty, write the smaller number first")
    return first, last


def _entries(tensor_class: TensorClass, raw: object, document: Document, path: NodePath) -> list[Entry]:
    if isinstance(raw, list) and raw:
        entries: list[Entry] = []
        faults: list[Fault] = []
        for index, item in enumerate(raw):
            try:
                entries.append(_entry(tensor_class, item, document, (*path, index)))
            except InputError as error:
                faults += error.faults
        if faults:
            raise InputError(faults)
        return entries
    return [_entry(tensor_class, raw, document, path)]


def _entry(tensor_class: TensorClass, raw: object, document: Document, path: NodePath) -> Entry:
    if isinstance(raw, str):
        return Entry(tensor_class=tensor_class, shares={raw: 1.0})
    if not isinstance(raw, Mapping) or not raw:
        what = f"expected a tier or shares of tiers, got {describe(raw)}"
        raise InputError(document.fault(path, what, "for example dram, or {dram: 60%, cxl0: 40%}"))
    faults: list[Fault] = []
    layers = None
    if "layers" in raw:
        try:
            layers = layer_range(raw["layers"])
        except ValueError as error:
            what, _, remedy = str(error).partition(", write ")
            faults.append(document.fault((*path, "layers"), what, f"write {remedy}"))
    policy = raw.get("policy", "interleave")
    options = raw.get("options", {})
    if not isinstance(policy, str):
        faults.append(document.fault((*path, "policy"), f"expected the name of a policy, got {describe(policy)}"))
    elif policy not in (*EXPLICIT, *POLICIES):
        known = (*EXPLICIT, *POLICIES)
        remedy = suggestion(policy, known) or f"use one of {', '.join(known)}"
        faults.append(document.fault((*path, "policy"), f"unknown placement policy {policy!r}", remedy))
    try:
        options = _options(options, str(policy), document, (*path, "options"))
    except InputError as error:
        faults += error.faults
    if policy in POLICIES and (given := [key for key in raw if key not in _POLICY_KEYS]):
        remedy = "leave one of the two out; options.tiers names the tiers it may use"
        faults.append(document.fault((*path, given[0]), f"{policy} decides the shares itself", remedy))
    shared = 0.0
    try:
        shared = _share(raw.get("shared", "0%"), document, (*path, "shared"))
    except InputError as error:
        faults += error.faults
    uneven: dict[str, Any] = {}
    try:
        uneven = _uneven(raw, str(policy), document, path)
    except InputError as error:
        faults += error.faults
    shares: dict[str, float] = {}
    try:
        shares = _shares(raw, str(policy), document, path)
    except InputError as error:
        faults += error.faults
    if faults:
        raise InputError(faults)
    return Entry(
        tensor_class=tensor_class, shares=shares, policy=str(policy), layers=layers, options=options, shared=shared, **uneven
    )


def _uneven(raw: Mapping[str, object], policy: str, document: Document, path: NodePath) -> dict[str, Any]:
    """`skew`, `granule` and `hint` of an entry as fields of it."""
    given = [key for key in _UNEVEN_KEYS if key in raw]
    if not given:
        return {}
    faults: list[Fault] = []
    skew, hint, granule = raw.get("skew", 0.0), raw.get("hint", HINTS[0]), PAGE_BYTES
    if isinstance(skew, bool) or not isinstance(skew, (int, float)) or not 0.0 <= skew <= _MOST_SKEW:
        what = f"expected the exponent of the accesses (Zipf), got {describe(skew)}"
        faults.append(document.fault((*path, "skew"), what, f"a number from 0 (all alike) to {_MOST_SKEW:g}"))
    elif not skew:
        faults.append(document.fault((*path, given[0]), f"{given[0]} without unevenness says nothing", "add skew: 0.8"))
    if hint not in HINTS:
        faults.append(document.fault((*path, "hint"), f"got {describe(hint)}", f"use one of {', '.join(HINTS)}"))
    elif hint != HINTS[0] and policy == "hot_cold":
        faults.append(document.fault((*path, "hint"), "hot_cold finds the hot pages itself", "remove the hint"))
    if "granule" in raw:
        try:
            granule = parse(raw["granule"], "bytes")
        except ValueError as error:
            what, _, remedy = str(error).partition(", write ")
            faults.append(document.fault((*path, "granule"), what, f"write {remedy}" if remedy else ""))
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


def _shares(raw: Mapping[str, object], policy: str, document: Document, path: NodePath) -> dict[str, float]:
    inline = {key: value for key, value in raw.items() if key not in _ENTRY_KEYS}
    given = [name for name in ("shares", "weights") if name in raw] + (["tiers"] if inline else [])
    if len(given) > 1:
        what = f"shares are given twice, by {' and by '.join(given)}"
        raise InputError(document.fault(path, what, "keep one"))
    if "weights" in raw:
        return _weights(raw["weights"], document, (*path, "weights"))
    if policy == _WEIGHTED:
        raise InputError(document.fault(path, f"{_WEIGHTED} needs 'weights'", "for example weights: {dram: 3, cxl0: 1}"))
    if "shares" in raw:
        here = (*path, "shares")
        if not isinstance(raw["shares"], Mapping) or not raw["shares"]:
            what = f"expected tiers and their shares, got {describe(raw['shares'])}"
            raise InputError(document.fault(here, what, "for example {dram: 60%, cxl0: 40%}"))
        return _fractions(raw["shares"], document, here)
    if not inline:
        if policy == "interleave":
            raise InputError(document.fault(path, "names no tier", "for example {dram: 60%, cxl0: 40%}"))
        return {}
    return _fractions(inline, document, path)


def _weights(raw: object, document: Document, path: NodePath) -> dict[str, float]:
    if not isinstance(raw, Mapping) or not raw:
        what = f"expected tiers and whole numbers, got {describe(raw)}"
        raise InputError(document.fault(path, what, "for example {dram: 3, cxl0: 1}"))
    faults = [
        document.fault((*path, tier), f"expected a whole number of pages from 1 up, got {describe(weight)}")
        for tier, weight in raw.items()
        if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1
    ]
    if faults:
        raise InputError(faults)
    total = sum(raw.values())
    return {tier: weight / total for tier, weight in raw.items()}


def _options(raw: object, policy: str, document: Document, path: NodePath) -> dict[str, object]:
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
            what, _, remedy = str(error).partition(", write ")
            faults.append(document.fault((*path, key), what, f"write {remedy}" if remedy else ""))
            continue
        if number < least or (dimension == "fraction" and number >= 1.0):
            faults.append(document.fault((*path, key), f"out of range, got {describe(value)}", f"at least {least:g}"))
    if faults:
        raise InputError(faults)
    return found


def _share(value: object, document: Document, path: NodePath, otherwise: str = "") -> float:
    """A share between 0% and 100%; `otherwise` is the remedy for what is no number at all."""
    try:
        share = parse(value, "fraction")
    except ValueError as error:
        what, _, remedy = str(error).partition(", write ")
        raise InputError(document.fault(path, what, f"write {remedy}" if remedy else otherwise)) from None
    if not 0.0 <= share <= 1.0:
        percent = f"write {value:g}%" if isinstance(value, (int, float)) and 1 < value <= 100 else ""
        raise InputError(document.fault(path, f"a share lies between 0% and 100%, got {describe(value)}", percent))
    return share


def _fractions(raw: Mapping[str, object], document: Document, path: NodePath) -> dict[str, float]:
    shares: dict[str, float] = {}
    faults: list[Fault] = []
    rest = [tier for tier, value in raw.items() if value == _REST]
    if len(rest) > 1:
        faults.append(document.fault((*path, rest[1]), f"a second {_REST!r}", "give one of them a share"))
    for tier, value in raw.items():
        if tier in rest:
            continue
        try:
            shares[tier] = _share(value, document, (*path, tier), suggestion(tier, _ENTRY_KEYS))
        except InputError as error:
            faults += error.faults
    if len(rest) == 1:
        left = max(0.0, 1.0 - sum(shares.values()))
        shares = {tier: left if tier in rest else shares[tier] for tier in raw if tier in rest or tier in shares}
    if not faults and abs(sum(shares.values()) - 1.0) > 1e-6:
        total = 100 * sum(shares.values())
        change = f"{'add' if total < 100 else 'take away'} {abs(100 - total):.6g}%"
        faults.append(document.fault(path, f"shares sum to {total:.6g}%, expected 100%", change))
    if faults:
        raise InputError(faults)
    return {tier: share for tier, share in shares.items() if share > 0}


def _offload_faults(entries: list[Entry], document: Document, path: NodePath) -> list[Fault]:
    placed = [entry for entry in entries if entry.tensor_class is TensorClass.OPTIMIZER_STATES]
    if not placed or all(dict(entry.shares) == {"dram": 1.0} and entry.layers is None for entry in placed):
        return []
    what = f"says {_words(placed[0])}, but optimizer.offload: true means placement.optimizer_states: dram"
    return [document.fault((*path, "optimizer_states"), what, "remove one of the two")]


def _words(entry: Entry) -> str:
    shares = ", ".join(f"{tier}: {100 * share:.6g}%" for tier, share in entry.shares.items())
    return f"{{{shares}}}"
