"""Token times integrate over the samples exactly when durations are linear in the token index."""

import pytest

from sim.errors import InternalError
from sim.metrics.inference import inference_times
from sim.records import Kind, Operation, OperationRecord, Program, Replay, Stream


def sampled(durations, prefill_s):
    """Program and replay of a prefill and tokens {index: duration}."""
    rows = [("prefill", 0, prefill_s), *(("decode", index, duration) for index, duration in durations.items())]
    operations, records, now = [], [], 0.0
    for sequence, (phase, index, duration) in enumerate(rows):
        operations.append(
            Operation(id=str(sequence), kind=Kind.COMPUTE, stream="s", sequence=sequence, phase=phase, micro_batch=index)
        )
        records.append(OperationRecord(id=str(sequence), ready_s=now, start_s=now, end_s=now + duration))
        now += duration
    program = Program(name="p", channels=(), tiers=(), streams=(Stream(name="s"),), operations=tuple(operations))
    return program, Replay(makespan_s=now, operations=tuple(records), channels=(), tiers=())


def test_linear_durations_integrate_exactly():
    def duration(index):
        return 0.010 + 1e-5 * index

    program, replay = sampled({index: duration(index) for index in (1, 50, 99)}, prefill_s=0.5)
    times = inference_times(program, replay, output_length=100, num_sequences=4)
    decode_s = sum(duration(index) for index in range(1, 100))
    assert times.time_to_first_token_s == pytest.approx(0.5)
    assert times.time_per_output_token_s == pytest.approx(decode_s / 99)
    assert times.tokens_per_s == pytest.approx(400 / (0.5 + decode_s))
    assert times.decode_tokens_per_s == pytest.approx(4 * 99 / decode_s)


def test_a_single_token_has_no_decode():
    program, replay = sampled({}, prefill_s=0.5)
    times = inference_times(program, replay, output_length=1, num_sequences=2)
    assert (times.time_per_output_token_s, times.decode_tokens_per_s) == (0.0, 0.0)
    assert times.tokens_per_s == pytest.approx(4.0)


def test_a_missing_sample_is_a_defect():
    program, replay = sampled({1: 0.01}, prefill_s=0.5)
    with pytest.raises(InternalError, match=r"sampled at \[1\] only"):
        inference_times(program, replay, output_length=3, num_sequences=1)
