"""Shares of tiers, as a placement entry writes them: percentages that sum to one, one of them the rest, or page weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sim.config.validation import FaultList, fault_of, suggestion
from sim.config.yaml_source import Document, NodePath, describe
from sim.errors import InputError
from sim.units import parse

#: policies whose shares come from `weights` N:M
_WEIGHTED = "weighted_interleave"
#: share of the tier that takes what the others leave
_REST = "rest"


def shares_from(
    raw: Mapping[str, object], policy: str, words: Collection[str], document: Document, path: NodePath
) -> dict[str, float]:
    """Tier -> share of an entry, whose own words are `words`: under `shares`, as `weights` N:M, or beside the words."""
    inline = {key: value for key, value in raw.items() if key not in words}
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
        return _fractions(raw["shares"], words, document, here)
    if not inline:
        if policy == "interleave":
            raise InputError(document.fault(path, "names no tier", "for example {dram: 60%, cxl0: 40%}"))
        return {}
    return _fractions(inline, words, document, path)


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


def share_from(value: object, document: Document, path: NodePath, otherwise: str = "") -> float:
    """A share between 0% and 100%; `otherwise` is the remedy for what is no number at all."""
    try:
        share = parse(value, "fraction")
    except ValueError as error:
        raise InputError(fault_of(error, document, path, otherwise)) from None
    if not 0.0 <= share <= 1.0:
        percent = f"write {value:g}%" if isinstance(value, (int, float)) and 1 < value <= 100 else ""
        raise InputError(document.fault(path, f"a share lies between 0% and 100%, got {describe(value)}", percent))
    return share


def _fractions(raw: Mapping[str, object], words: Collection[str], document: Document, path: NodePath) -> dict[str, float]:
    shares: dict[str, float] = {}
    faults = FaultList()
    rest = [tier for tier, value in raw.items() if value == _REST]
    if len(rest) > 1:
        faults.append(document.fault((*path, rest[1]), f"a second {_REST!r}", "give one of them a share"))
    for tier, value in raw.items():
        if tier in rest:
            continue
        with faults.collect():
            shares[tier] = share_from(value, document, (*path, tier), suggestion(tier, words))
    if len(rest) == 1:
        left = max(0.0, 1.0 - sum(shares.values()))
        shares = {tier: left if tier in rest else shares[tier] for tier in raw if tier in rest or tier in shares}
    if not faults and abs(sum(shares.values()) - 1.0) > 1e-6:
        total = 100 * sum(shares.values())
        change = f"{'add' if total < 100 else 'take away'} {abs(100 - total):.6g}%"
        faults.append(document.fault(path, f"shares sum to {total:.6g}%, expected 100%", change))
    faults.stop()
    return {tier: share for tier, share in shares.items() if share > 0}
