"""Accesses that are not spread evenly: which share of them goes to the hottest pages of a tensor class.

The items of a class (pages, rows of an embedding, experts), ranked by heat, are accessed in proportion to rank^-s (Zipf): s = 0
is a dense sweep, s near 1 words and items of shops and logs (Breslau et al., INFOCOM 1999: 0.64 to 0.83; embedding tables of
recommenders 0.6 to 1.1), so that of a million items the hottest 1 % take 28 % at s = 0.7 and 68 % at s = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, pow

#: the smallest thing that a kernel can move
PAGE_BYTES = 4096.0
#: ranks that are summed one by one; the rest is an integral (error below 1e-5 of the sum for s up to 2)
_EXACT = 64
#: groups of equal heat that the items of a class are counted in, hottest first, each twice as large as the one before or finer
NUM_GROUPS = 24


def _sum(count: float, skew: float) -> float:
    """rank^-skew summed over the first `count` items; a part of an item counts in part."""
    whole = min(int(count), _EXACT)
    total = sum(pow(rank, -skew) for rank in range(1, whole + 1))
    if count <= _EXACT:
        return total + (count - whole) * pow(whole + 1.0, -skew)
    low, high = _EXACT + 0.5, count + 0.5
    if abs(skew - 1.0) < 1e-9:
        return total + log(high / low)
    return total + (pow(high, 1.0 - skew) - pow(low, 1.0 - skew)) / (1.0 - skew)


def hot_share(share: float, skew: float, num_items: float) -> float:
    """Share of the accesses that go to the hottest `share` (0..1) of `num_items` items."""
    if skew <= 0.0 or num_items <= 1.0:
        return share
    return min(1.0, _sum(share * num_items, skew) / _sum(num_items, skew))


def heat_groups(skew: float, num_items: float) -> list[tuple[float, float]]:
    """Groups of items by heat, hottest first: (share of the items, share of the accesses); each sums to 1."""
    if skew <= 0.0 or num_items <= 1.0:
        return [(1.0, 1.0)]
    ends = [pow(num_items, k / NUM_GROUPS - 1.0) for k in range(1, NUM_GROUPS + 1)]
    groups, size, accesses = list[tuple[float, float]](), 0.0, 0.0
    for end in ends:
        reached = hot_share(end, skew, num_items)
        groups.append((end - size, reached - accesses))
        size, accesses = end, reached
    return groups


def accesses_by_tier(
    shares: Mapping[str, float], fastest_first: Sequence[str], hint: str, skew: float, num_items: float
) -> dict[str, float]:
    """Share of the accesses that each tier answers, from its share of the items.

    `hint` says which items the fastest tiers hold: "right" the hottest, "wrong" the coldest, "none" any.
    """
    if hint == "none" or skew <= 0.0:
        return dict(shares)
    order = [name for name in (fastest_first if hint == "right" else reversed(fastest_first)) if name in shares]
    found, size, accesses = dict[str, float](), 0.0, 0.0
    for name in order:
        size += shares[name]
        reached = hot_share(min(1.0, size), skew, num_items)
        found[name], accesses = reached - accesses, reached
    return found
