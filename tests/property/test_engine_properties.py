"""Properties of the replay on random programs."""

import random

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.engine import replay, run_checked
from sim.records import Channel, Kind, Operation, Program, Stream
from tests.random_programs import random_program

seeds = st.integers(min_value=0, max_value=2**32)


@settings(deadline=None, max_examples=60)
@given(seeds, st.booleans())
def test_every_invariant_holds(seed, is_round):
    run_checked(random_program(seed, is_round=is_round))


@settings(deadline=None, max_examples=60)
@given(seeds, st.booleans())
@example(394, True)  # a flow at one level on two channels that little else uses
def test_every_invariant_holds_for_weights_and_costs_of_very_different_size(seed, is_round):
    run_checked(random_program(seed, num_streams=6, num_operations=40, is_round=is_round, is_wide=True))


@settings(deadline=None, max_examples=30)
@given(seeds, st.booleans())
def test_shuffled_lines_give_bit_equal_records(seed, is_round):
    program = random_program(seed, is_round=is_round)
    draw = random.Random(seed)

    def shuffled(rows):
        return tuple(draw.sample(rows, len(rows)))

    other = msgspec.structs.replace(
        program,
        channels=shuffled(program.channels),
        streams=shuffled(program.streams),
        operations=shuffled(program.operations),
    )
    assert replay(other, level="full") == replay(program, level="full")


@settings(deadline=None, max_examples=30)
@given(seeds, st.booleans())
def test_renamed_things_give_equal_times(seed, is_round):
    program = random_program(seed, is_round=is_round)
    draw = random.Random(seed)
    channel_names = [channel.name for channel in program.channels]
    stream_names = [stream.name for stream in program.streams]
    rename = dict(zip(channel_names, draw.sample(channel_names, len(channel_names)), strict=True))
    rename |= dict(zip(stream_names, draw.sample(stream_names, len(stream_names)), strict=True))
    other = msgspec.structs.replace(
        program,
        channels=tuple(msgspec.structs.replace(c, name=rename[c.name]) for c in program.channels),
        streams=tuple(msgspec.structs.replace(s, name=rename[s.name]) for s in program.streams),
        operations=tuple(
            msgspec.structs.replace(o, stream=rename[o.stream], uses=tuple((rename[c], cost) for c, cost in o.uses))
            for o in program.operations
        ),
    )
    before = {record.id: record.end_s for record in replay(program).operations}
    after = {record.id: record.end_s for record in replay(other).operations}
    assert after == {name: pytest.approx(end, rel=1e-9, abs=1e-12) for name, end in before.items()}


def interleaved(seed):
    """Jobs whose flows lie in equal parts on equal channels, weights as they come: every channel limits at one level."""
    draw = random.Random(seed)
    cards = tuple(Channel(name=f"card{i}", bandwidth_per_s=22.5e9) for i in range(draw.randint(2, 4)))
    jobs = range(draw.randint(2, 5))
    operations = tuple(
        Operation(
            id=f"j{job}.{i}", kind=Kind.TRANSFER, stream=f"j{job}", sequence=i, work=draw.uniform(1e8, 1e10),
            uses=tuple((card.name, share) for card in cards), weight=weight, latency_s=draw.choice((0.0, 0.01)),
        )
        for job in jobs
        for weight, share in ((draw.uniform(0.003, 1.0), draw.uniform(0.1, 0.6)),)
        for i in range(12)
    )  # fmt: skip
    streams = tuple(Stream(name=f"j{job}") for job in jobs)
    return Program(name=f"cards-{seed}", channels=cards, tiers=(), streams=streams, operations=operations)


@settings(deadline=None, max_examples=60)
@given(seeds)
def test_flows_interleaved_over_equal_channels_settle_for_any_weights(seed):
    run_checked(interleaved(seed))
