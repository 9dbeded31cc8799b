"""The wires: directed edges between devices, and the media of tiers. Plain data that routing walks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One direction of a link. `channels` are what a byte that crosses it uses, with its cost on each."""

    source: str
    target: str
    link: str  # link type: pcie cxl nvlink c2c xgmi upi network io
    channels: tuple[tuple[str, float], ...]
    bandwidth_bytes_per_s: float  # of the first channel: what one flow can reach
    request_cost: float = 0.0  # bytes of requests this way for each byte that a load brings the other way
    message_latency_s: float = 0.0
    lanes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """How a tier hangs on its device: its port, what a byte costs there, and what bounds one user.

    A read byte uses 1 of the channel, a written byte `write_cost`; pure streams of writes (DMA, non-temporal stores)
    `stream_write_cost`.
    """

    tier: str
    device: str
    channel: str
    write_cost: float = 1.0
    stream_write_cost: float = 1.0
    access_latency_s: float = 0.0  # before the first byte of a bulk transfer (storage)
