"""Back-invalidation: what hosts that share memory of a pool say to each other about it, per cache line accessed.

A device with back-invalidate (CXL 3) keeps a snoop filter: before a host may write a line, the others that hold it are told
to drop it; before it may read a line that another has changed, that one writes it back. H hosts access the shared region
alike and independently, a share w of the accesses are writes. Looking back from one access by a host:
- the line is dirty elsewhere if the access before was by another, and that one's accesses so far back to a write of its own
  were not interrupted: d = (H-1)/H w / (1 - (1-w)/H) = w (H-1) / (H - 1 + w);
- another host holds it unless somebody wrote it since that host's last access: (1/H) / (1/H + w (H-1)/H) = 1 / (1 + w (H-1)).
A read snoops the owner of a dirty line; a write snoops all holders. Only lines still in a cache count: at most the share of
the region that a host's last-level cache holds. Source: CXL 3.1 specification, sections 3.3.8 and 4.3 (flows, flit slots);
the steady state is derived here. Not modelled: capacity of the filter, false sharing, uneven sharers.
"""

from __future__ import annotations

from dataclasses import dataclass

LINE_BYTES = 64.0
#: one 16-byte slot of a flit carries one snoop (BISnp) or one answer (BIRsp), and heads a line of data
MESSAGE_BYTES = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalidation:
    """Per byte that one host accesses: bytes towards all other hosts together, bytes from them, bytes written back."""

    to_hosts: float
    from_hosts: float
    written_back: float


def invalidation(num_hosts: int, write_share: float, cached_share: float) -> Invalidation:
    """Traffic of coherence per byte accessed in a region that `num_hosts` hosts share.

    `write_share` of the accesses are writes, `cached_share` of the region stays in a host's cache (both 0..1). One host
    says nothing, nor do hosts that only read.
    """
    others, w = num_hosts - 1, write_share
    dirty = cached_share * w * others / (others + w) if w > 0.0 else 0.0
    holders = cached_share * others / (1.0 + w * others)
    snoops = (1.0 - w) * dirty + w * holders
    message = MESSAGE_BYTES / LINE_BYTES
    return Invalidation(
        to_hosts=message * snoops, from_hosts=message * (snoops + dirty) + dirty, written_back=dirty,
    )  # fmt: skip
