"""Back-invalidation: what hosts that share memory of a pool say to each other about it, per cache line accessed.

A device with back-invalidate (CXL 3) keeps a snoop filter: before a host may write a line, the others that hold it are told
to drop it; before it may read a line that another has changed, that one writes it back. H hosts access the shared region
alike and independently, a share w of the accesses are writes. Looking back from one access by a host:
- the line is dirty elsewhere if the access before was by another, and that one's accesses so far back to a write of its own
  were not interrupted: d = (H-1)/H w / (1 - (1-w)/H) = w (H-1) / (H - 1 + w);
- another host holds it unless somebody wrote it since that host's last access: (1/H) / (1/H + w (H-1)/H) = 1 / (1 + w (H-1)).
A read snoops the owner of a dirty line; a write snoops all holders. Only lines still in a cache count: at most the share of
the region that a host's last-level cache holds.

A filter that can track a share t of the region only, and less than the caches would hold, evicts an entry for each access to a
line that it does not track: 1 - t of the accesses. It asks every holder to drop the victim, the accessing host too. Looking
back from an access to a line, the event before is then an access with probability t and an eviction otherwise, so that
    d = t (H-1)/H q,  q = w / (1 - (1-w) t/H),  and another host holds it with p = (t/H) / (t/H + t w (H-1)/H + 1 - t);
a victim (a tracked line) has H p / t holders. What a victim's holder writes back it has written before: no byte beyond the
write itself. Hosts tell the device of clean lines that they drop, so that the filter tracks what caches hold and no more.
Source: CXL 3.1 specification, sections 3.3.8 and 4.3 (flows, flit slots); the steady state is derived here for accesses spread
evenly over the region. Not modelled: sets of the filter (it is fully associative), false sharing, uneven sharers.
"""

from __future__ import annotations

from dataclasses import dataclass

LINE_BYTES = 64.0
#: one 16-byte slot of a flit carries one snoop (BISnp) or one answer (BIRsp), and heads a line of data
MESSAGE_BYTES = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalidation:
    """Per byte that one host accesses: bytes towards all other hosts together, bytes from them, bytes written back.

    `evicted` are the bytes of each direction for lines that the snoop filter evicts, over all hosts, the accessing one too.
    """

    to_hosts: float
    from_hosts: float
    written_back: float
    evicted: float = 0.0


def invalidation(num_hosts: int, write_share: float, cached_share: float, tracked_share: float = 1.0) -> Invalidation:
    """Traffic of coherence per byte accessed in a region that `num_hosts` hosts share.

    `write_share` of the accesses are writes, `cached_share` of the region stays in a host's cache, the snoop filter can track
    `tracked_share` of it (all 0..1). With a large enough filter, one host says nothing, nor do hosts that only read.
    """
    others, w, message = num_hosts - 1, write_share, MESSAGE_BYTES / LINE_BYTES
    is_full = tracked_share < caches_hold(num_hosts, cached_share)
    tracked = tracked_share if is_full else 1.0
    per_host = tracked / num_hosts
    owned = w / (1.0 - (1.0 - w) * per_host) if w > 0.0 else 0.0
    held = per_host / (per_host + per_host * w * others + 1.0 - tracked) if tracked > 0.0 else 0.0
    dirty, holders = per_host * others * owned, others * held
    if not is_full:
        dirty, holders = cached_share * dirty, cached_share * holders
    snoops = (1.0 - w) * dirty + w * holders
    evicted = (1.0 - tracked) * num_hosts * held / tracked if tracked > 0.0 else 1.0  # nothing is kept: each line once
    return Invalidation(
        to_hosts=message * snoops, from_hosts=message * (snoops + dirty) + dirty, written_back=dirty,
        evicted=message * evicted,
    )  # fmt: skip


def caches_hold(num_hosts: int, cached_share: float) -> float:
    """Share of a region that is in the cache of any host, where each holds `cached_share` of it independently."""
    return 1.0 - (1.0 - cached_share) ** num_hosts
