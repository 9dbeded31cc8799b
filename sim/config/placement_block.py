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

from collections.abc import Mapping

from sim.config.placement_entry import entries_from, policy_options
from sim.config.validation import refuse_unknown, suggestion
from sim.config.yaml_source import Document, NodePath, describe
from sim.errors import Fault, InputError
from sim.laws.paging import REPLACEMENTS
from sim.placement.plan import Entry, Placement
from sim.placement.registry import EXPLICIT, POLICIES
from sim.records import TensorClass

_CLASSES = tuple(tensor_class.value for tensor_class in TensorClass)
#: answers to a host tier that is too small, and how its pages are replaced; the first is the default
_OVERFLOW = {"overflow": ("fail", "swap", "spill"), "replacement": REPLACEMENTS}
#: what a policy for the whole block places unless told otherwise
_OPTIMIZER_CLASSES = (TensorClass.OPTIMIZER_STATES.value,)


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
            entries += entries_from(TensorClass(name), raw[name], document, here)
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
        rest = policy_options(rest, name, document, (*path, "options"))
    except InputError as error:
        return [], list(error.faults)
    return [
        Entry(tensor_class=TensorClass(item), shares={}, policy=name, options=rest) for item in classes if item not in raw
    ], []


def _offload_faults(entries: list[Entry], document: Document, path: NodePath) -> list[Fault]:
    placed = [entry for entry in entries if entry.tensor_class is TensorClass.OPTIMIZER_STATES]
    if not placed or all(dict(entry.shares) == {"dram": 1.0} and entry.layers is None for entry in placed):
        return []
    what = f"says {_words(placed[0])}, but optimizer.offload: true means placement.optimizer_states: dram"
    return [document.fault((*path, "optimizer_states"), what, "remove one of the two")]


def _words(entry: Entry) -> str:
    shares = ", ".join(f"{tier}: {100 * share:.6g}%" for tier, share in entry.shares.items())
    return f"{{{shares}}}"
