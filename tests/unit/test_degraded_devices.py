"""Devices that are held back: a power limit, a straggler of the same memory. One slow GPU paces all, folded or not."""

import pytest

from sim.config import scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.laws.power import clock_share

TRAINING = {"model": "llama-2-7b", "batch_size": 1, "parallelism": {"data": 8, "zero_stage": 3}}


def seconds(changes, *, is_folded=True, base="dgx-h100"):
    data = {
        "topology": {"base": base, "set": changes} if changes else base,
        "workload": {"training": TRAINING},
        "options": {"is_folded": is_folded},
    }
    return run(scenario_of(data).resolve(), with_penalty=False).summary.step_time_s


@pytest.mark.parametrize(("cap", "share"), [(700.0, 1.0), (900.0, 1.0), (350.0, 0.5 ** (1 / 3)), (87.5, 0.5)])
def test_the_clock_falls_with_the_cube_root_of_the_power(cap, share):
    assert clock_share(cap, 700.0) == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize(("cap", "rated"), [(0.0, 700.0), (300.0, 0.0), (-1.0, 700.0)])
def test_watts_are_positive(cap, rated):
    with pytest.raises(ValueError, match="watts are positive"):
        clock_share(cap, rated)


def test_one_capped_gpu_paces_all_eight_folded_or_not():
    one = {"gpu3.power_cap": "350 W"}
    healthy, slowed, alone = seconds({}), seconds(one), seconds(one, is_folded=False)
    assert slowed == pytest.approx(alone, rel=1e-9)
    assert healthy < slowed <= healthy * 2 ** (1 / 3)
    assert seconds({"gpu*.power_cap": "350 W"}) == pytest.approx(slowed, rel=0.02)


def test_a_cap_at_the_rated_power_changes_nothing():
    assert seconds({"gpu*.power_cap": "700 W"}) == seconds({})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu1.power_cap": "701 W"}, "701 W, h100-sxm is rated 700 W; use at most 700 W"),
        ({"cpu0.power_cap": "100 W"}, "is no GPU"),
    ],
)
def test_limits_that_hold_nothing_back_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        seconds(changes)
