"""1F1B order: hand-written small pipelines and what must hold for any."""

from collections import Counter

import pytest

from sim.workload.step.schedule import turns


def _short(stage: int, stages: int, chunks: int, micro_batches: int) -> str:
    return " ".join(
        f"{turn.direction[0].upper()}{turn.micro_batch}" + (f".{turn.chunk}" if chunks > 1 else "")
        for turn in turns(stage, stages, chunks, micro_batches)
    )


def test_plain_accumulation_alternates():
    assert _short(0, 1, 1, 3) == "F0 B0 F1 B1 F2 B2"


def test_one_f_one_b_of_two_stages():
    assert _short(0, 2, 1, 3) == "F0 F1 B0 F2 B1 B2"
    assert _short(1, 2, 1, 3) == "F0 B0 F1 B1 F2 B2"


def test_interleaved_two_stages_two_chunks():
    # warm-up of stage 0: 2*(2-1) + (2-1)*2 = 4 passes, of stage 1: 2
    assert _short(0, 2, 2, 2) == "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0"
    assert _short(1, 2, 2, 2) == "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0"


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(1, 1, 1), (4, 1, 2), (4, 3, 8), (8, 2, 16)])
def test_each_pass_once_and_forward_before_backward(stages, chunks, micro_batches):
    for stage in range(stages):
        order = list(turns(stage, stages, chunks, micro_batches))
        assert Counter(order).most_common(1)[0][1] == 1
        assert len(order) == 2 * chunks * micro_batches
        position = {turn: index for index, turn in enumerate(order)}
        for turn, index in position.items():
            if turn.direction == "backward":
                assert position[turn._replace(direction="forward")] < index
