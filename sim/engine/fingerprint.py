"""What decides the times of a replay, as a hash: programs that agree in it take equal times, bit for bit.

A channel that can never be full decides nothing beyond the caps of its users, and neither do the weights of flows that
share no such channel: a faster host memory that nobody waits for leaves the fingerprint as it is.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b

import msgspec

from sim.engine.arrays import Arrays
from sim.engine.build import build
from sim.program.order import order_of
from sim.records import Program

_PACKED = msgspec.msgpack.Encoder()


def fingerprint(program: Program) -> str:
    """Hash of all that decides when the operations of `program` start and end and what each tier holds meanwhile.

    Capacities of tiers are left out: it is for replays that observe them. Raises InputError as :func:`sim.engine.replay`.
    """
    arrays = build(program)
    is_coupled = [bool(path.couplings) for path in arrays.paths]
    weight = [weight if is_coupled[path] else 1.0 for weight, path in zip(arrays.weight, arrays.path, strict=True)]
    state = blake2b(digest_size=16)
    for numbers in (arrays.work, arrays.cap, arrays.latency_s, weight):
        state.update(array("d", numbers).tobytes())
    state.update(array("q", arrays.path).tobytes())
    if (order := order_of(program.operations)) is not None:
        state.update(order.digest)
    state.update(_PACKED.encode([[path.couplings, path.servers] for path in arrays.paths]))
    state.update(_PACKED.encode(_coupled_channels(arrays)))
    state.update(_PACKED.encode([[tier.name, tier.multiplicity] for tier in arrays.tiers]))
    state.update(_PACKED.encode([list(arrays.windows.items()), list(arrays.allocates.items()), list(arrays.frees.items())]))
    state.update(_PACKED.encode([[[stream.name, stream.multiplicity] for stream in arrays.streams], arrays.resident]))
    return state.hexdigest()


def _coupled_channels(arrays: Arrays) -> list[object]:
    """The channels that flows share, and those whose latency limits some."""
    coupled = {channel for path in arrays.paths for channel, _ in path.couplings}
    rows: list[object] = []
    for index in sorted(coupled):
        channel = arrays.channels[index]
        rows.append([index, channel.bandwidth_per_s, channel.multiplicity, channel.is_server, channel.latency])
    if arrays.windows:  # costs decide which share of a path's latency is a channel's
        rows.append([[path.channels, path.costs] for path in arrays.paths])
        rows.append([operation.write_share for operation in arrays.operations])
    return rows
