"""Random programs for property and differential tests: small systems with everything the engine knows."""

from __future__ import annotations

import random

from sim.records import INFINITY, Allocation, Channel, Kind, LatencyLaw, Operation, Program, Stream, Tier


def random_program(
    seed: int,
    *,
    num_streams: int = 4,
    num_channels: int = 4,
    num_operations: int = 24,
    has_latency: bool = True,
    is_round: bool = False,
    has_windows: bool = False,
    is_wide: bool = False,
) -> Program:
    """A program that always ends: dependencies point to operations drawn earlier.

    `is_round` makes ties frequent; `is_wide` draws weights and costs that lie many orders of magnitude apart.
    """
    draw = random.Random(seed)
    costs = (0.0, 1e-4, 1.0, 1.0, 1e2) if is_wide else (0.0, 0.5, 1.0, 1.0, 2.0)
    weights = (1e-3, 1.0, 143.0) if is_wide else (1.0, 1.0, 2.0, 64.0)

    def amount(low: float, high: float) -> float:
        return float(draw.randint(1, 4)) * 10.0 if is_round else draw.uniform(low, high)

    def law() -> LatencyLaw | None:
        if not has_windows or draw.random() < 0.3:
            return None
        return LatencyLaw(idle_latency_s=draw.uniform(0.1, 1.0), a=draw.random(), c=0.4, k=draw.uniform(0.0, 0.9))

    channels = tuple(Channel(name=f"c{i}", bandwidth_per_s=amount(10, 100), latency=law()) for i in range(num_channels))
    streams = tuple(Stream(name=f"s{i}") for i in range(num_streams))
    sequence = dict.fromkeys((stream.name for stream in streams), 0)
    operations: list[Operation] = []
    for i in range(num_operations):
        stream = draw.choice(streams).name
        path = draw.sample(channels, draw.randint(0, min(3, num_channels)))
        uses = tuple((channel.name, draw.choice(costs)) for channel in path)
        has_law = any(channel.latency and cost for channel, (_, cost) in zip(path, uses, strict=True))
        is_capped = draw.random() < 0.5 or not any(cost for _, cost in uses)
        allocates, frees = (), ()
        if i and draw.random() < 0.3:
            allocates = frees = (Allocation(tier="m", tensor_class="buffers", size_bytes=amount(1, 9)),)
        operations.append(
            Operation(
                id=f"o{i}",
                kind=Kind.TRANSFER,
                stream=stream,
                sequence=sequence[stream],
                after=tuple(sorted({draw.choice(operations).id for _ in range(draw.randint(0, 2)) if operations})),
                work=0.0 if draw.random() < 0.15 else amount(1, 100),
                uses=uses,
                rate_cap=amount(1, 50) if is_capped else INFINITY,
                latency_s=draw.choice((0.0, 0.0, 0.1, 0.25)) if has_latency else 0.0,
                window_bytes=amount(1, 40) if has_law and draw.random() < 0.5 else 0.0,
                write_share=draw.uniform(0.0, 0.5) if has_windows else 0.0,
                weight=draw.choice(weights),
                allocates=allocates,
                frees=frees,
            )
        )
        sequence[stream] += 1
    tiers = (Tier(name="m", capacity_bytes=1e6),)
    return Program(name=f"random-{seed}", channels=channels, tiers=tiers, streams=streams, operations=tuple(operations))
