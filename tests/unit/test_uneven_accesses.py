"""Uneven accesses: Zipf sums, groups by heat, hints, and scans that find hot pages."""

import math
from itertools import pairwise

import pytest

from sim.config import load_scenario, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.laws.skew import accesses_by_tier, heat_groups, hot_share
from sim.placement.plan import Entry, Placement
from sim.placement.policies import Observation, TierView
from sim.placement.registry import policy
from sim.records import TensorClass as T

GIB = 2.0**30


@pytest.mark.parametrize("skew", [0.0, 0.5, 0.8, 1.0, 1.2, 2.0])
@pytest.mark.parametrize(("share", "num"), [(0.01, 10_000), (0.25, 1_000), (0.5, 8), (1.0, 5_000)])
def test_the_hottest_items_take_what_a_sum_over_all_says(skew, share, num):
    weights = [rank**-skew for rank in range(1, num + 1)]
    expected = sum(weights[: round(share * num)]) / sum(weights)
    assert hot_share(share, skew, num) == pytest.approx(expected, rel=1e-4)


def test_even_accesses_take_no_notice_of_order():
    assert hot_share(0.3, 0.0, 1e6) == 0.3
    assert heat_groups(0.0, 1e6) == [(1.0, 1.0)]


@pytest.mark.parametrize(("skew", "num"), [(0.3, 1e3), (0.9, 1e7), (1.5, 64.0)])
def test_groups_hold_all_items_and_fall_in_heat(skew, num):
    groups = heat_groups(skew, num)
    assert math.fsum(size for size, _ in groups) == pytest.approx(1.0)
    assert math.fsum(accesses for _, accesses in groups) == pytest.approx(1.0)
    heat = [accesses / size for size, accesses in groups]
    assert all(colder <= hotter * (1 + 1e-9) for hotter, colder in pairwise(heat))


def test_hints_right_and_wrong_are_opposite_ends():
    shares, order = {"dram": 0.25, "cxl0": 0.75}, ["dram", "cxl0"]
    right = accesses_by_tier(shares, order, "right", 1.0, 1e6)
    wrong = accesses_by_tier(shares, order, "wrong", 1.0, 1e6)
    assert accesses_by_tier(shares, order, "none", 1.0, 1e6) == shares
    assert right["dram"] == pytest.approx(hot_share(0.25, 1.0, 1e6))
    assert wrong["dram"] == pytest.approx(1.0 - hot_share(0.75, 1.0, 1e6))
    assert wrong["dram"] < shares["dram"] < right["dram"]
    assert sum(right.values()) == pytest.approx(1.0)


def test_a_scan_moves_the_hot_pages_of_one_class_up_and_its_cold_pages_down():
    def view(name, rate, latency):
        return TierView(
            name=name, free_bytes=0.0 if name == "dram" else 100 * GIB, bandwidth_bytes_per_s=rate, latency_s=latency
        )

    seen = Observation(
        elapsed_s=10.0, tiers=(view("dram", 250e9, 90e-9), view("cxl0", 50e9, 220e-9)),
        resident_bytes={(T.WEIGHTS, 0): {"cxl0": GIB}, (T.WEIGHTS, 1): {"dram": GIB}, (T.WEIGHTS, 2): {"dram": 2 * GIB}},
        touched_bytes={(T.WEIGHTS, 0): 10 * GIB, (T.WEIGHTS, 1): 6 * GIB, (T.WEIGHTS, 2): 1.0},
    )  # fmt: skip
    moves = policy("hot_cold").decide(seen, {"free_share": 0.0})
    assert [(move.group, move.target, move.size_bytes) for move in moves] == [(2, "cxl0", GIB), (0, "dram", GIB)]


@pytest.fixture(scope="module")
def answers():
    return {str(p.parameters["placement"]): run(p, with_penalty=False) for p in load_scenario("tiers/uneven-experts").expand()}


def test_hints_and_scans_pay_where_accesses_are_uneven_and_only_there(answers):
    times = {name: result.summary.step_time_s for name, result in answers.items()}
    assert times["right hint"] < 0.5 * times["any pages"] < times["any pages"] < 0.8 * times["wrong hint"]
    assert times["scans"] < 0.5 * times["any pages"]
    assert times["scans, all alike"] > 0.95 * times["first touch, all alike"]


def test_scans_raise_what_the_fast_tier_answers_far_above_its_bytes(answers):
    steps = answers["scans"].tiering
    assert steps[0].fast_access_share == pytest.approx(steps[0].fast_share)
    assert steps[-1].fast_access_share > steps[-1].fast_share + 0.15
    assert sum(step.promoted_bytes for step in steps) > 0.0
    even = answers["scans, all alike"].tiering
    assert all(step.fast_access_share == pytest.approx(step.fast_share) for step in even)


def test_bytes_lie_where_the_shares_say_whatever_is_hot(answers):
    right, wrong = (answers[name].summary.tiers for name in ("right hint", "wrong hint"))
    assert right["cpu0.dram"].peak_bytes == pytest.approx(wrong["cpu0.dram"].peak_bytes)
    assert right["cxl0"].peak_bytes == pytest.approx(wrong["cxl0"].peak_bytes)


def test_a_placement_tells_bytes_and_accesses_apart():
    entry = Entry(tensor_class=T.WEIGHTS, shares={"dram": 0.5, "cxl0": 0.5}, accesses={"dram": 0.9, "cxl0": 0.1})
    placement = Placement(entries=(entry,))
    assert placement.shares(T.WEIGHTS)["dram"] == 0.5
    assert placement.accesses(T.WEIGHTS)["dram"] == 0.9
    assert placement.accesses(T.KV_CACHE) == {"gpu": 1.0}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dram": "100%", "skew": 4}, r"weights\.skew: expected the exponent of the accesses \(Zipf\), got 4; a number from 0"),
        ({"dram": "100%", "hint": "right"}, r"weights\.hint: hint without unevenness says nothing; add skew: 0\.8"),
        ({"dram": "100%", "skew": 0.8, "hint": "left"}, r"weights\.hint: got .*left.*; use one of none, right, wrong"),
        ({"policy": "hot_cold", "skew": 0.8, "hint": "right"}, "hot_cold finds the hot pages itself; remove the hint"),
        ({"dram": "100%", "skew": 0.8, "granule": "8 B"}, r"weights\.granule: got .*8 B.*; at least one line of 64 B"),
        ({"layers": "0-3", "dram": "100%", "skew": 0.8}, "uneven accesses are of a class as a whole"),
    ],
)
def test_what_makes_no_sense_is_refused(entry, message):
    asked = {
        "topology": "epyc-9554p-2x4090",
        "workload": {"inference": {"model": "llama-2-7b", "gpu_layers": 0}},
        "placement": {"weights": entry},
    }
    with pytest.raises(InputError, match=message):
        scenario_of(asked).resolve()
