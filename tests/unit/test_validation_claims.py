"""Claims about a sweep: one point, a ratio of two points, and where the claim holds."""

import pytest

from sim.metrics.claim import in_words, verdict_of_points

POINTS = [
    {"parameters": {"ram": 64, "disk": disk}, "step_time_s": 2.0 * slow, "fits": True} for disk, slow in ((1, 3.0), (4, 1.1))
] + [{"parameters": {"ram": 128, "disk": disk}, "step_time_s": 2.0, "fits": True} for disk in (1, 4)]
CLAIM = {"id": "A02", "stated": "2.3x", "metric": "step_time_s", "range": (2.0, 3.5), "against": {"ram": 128}}


def test_a_ratio_claim_is_judged_at_its_point():
    found = verdict_of_points({**CLAIM, "at": {"ram": 64, "disk": 1}}, POINTS)
    assert (found["simulated"], found["verdict"]) == (pytest.approx(3.0), "reproduced")
    found = verdict_of_points({**CLAIM, "at": {"ram": 64, "disk": 4}}, POINTS)
    assert (found["simulated"], found["verdict"]) == (pytest.approx(1.1), "not reproduced")


def test_the_points_where_a_claim_holds_are_listed():
    assert verdict_of_points(CLAIM, POINTS)["holds"] == [{"ram": 64, "disk": 1}]


def test_a_point_that_is_not_in_the_sweep_reproduces_nothing():
    found = verdict_of_points({**CLAIM, "at": {"ram": 32}}, POINTS)
    assert (found["simulated"], found["verdict"]) == (None, "not reproduced")


@pytest.mark.parametrize(
    ("value", "claim", "words"),
    [
        (True, {}, "yes"),
        (None, {"metric": "step_time_s"}, "nothing ran"),
        (2.2866, {"metric": "step_time_s", "against": {"x": 1}}, "2.29x"),
        (141107412992.0, {"metric": "tiers.cpu0.dram.by_class.weights"}, "141 GB"),
        (2.948e12, {"metric": "channels.gpu0.hbm.bandwidth_bytes_per_s"}, "2.95 TB/s"),
        (0.0034, {"metric": "step_time_s"}, "3.4 ms"),
        (1234.5, {"metric": "tokens_per_s"}, "1234"),
    ],
)
def test_a_simulated_value_reads_with_its_unit(value: object, claim: dict[str, object], words: str) -> None:
    assert in_words(value, claim) == words
