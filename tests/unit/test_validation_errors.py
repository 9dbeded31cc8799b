"""Error statistics, on values small enough to check by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.metrics import errors


@pytest.mark.parametrize(
    ("values", "weights", "q", "expected"),
    [
        ([1, 2, 3], [1, 1, 1], 0.5, 2),
        ([1, 2, 3, 4], [1, 1, 1, 1], 0.5, 2.5),
        ([1, 2], [3, 1], 0.5, 1),
        ([1, 2], [1, 3], 0.5, 2),
        (list(range(1, 11)), [1] * 10, 0.9, 9),
        ([5], [1], 0.9, 5),
    ],
)
def test_weighted_quantile(values, weights, q, expected):
    assert errors.weighted_quantile(values, weights, q) == expected


def test_publication_weights_cap_the_long_publication():
    names = ["long"] * 96 + ["b", "c", "d", "e", "f"]
    weights = errors.publication_weights(names)
    assert sum(weights[:96]) == pytest.approx(0.2 * len(names))
    assert weights[96:] == [pytest.approx(0.16 * len(names))] * 5
    assert errors.publication_weights(["a"] * 3 + ["b"]) == [pytest.approx(2 / 3)] * 3 + [pytest.approx(2)]
    assert errors.publication_weights(["only"] * 4) == [1.0] * 4


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
@settings(deadline=None, max_examples=60)
def test_weights_sum_to_the_rows_and_respect_the_cap(counts):
    names = [str(i) for i, count in enumerate(counts) for _ in range(count)]
    weights = errors.publication_weights(names)
    assert sum(weights) == pytest.approx(len(names))
    cap = max(errors.MAX_SHARE, 1 / len(counts)) * len(names)
    for index in range(len(counts)):
        assert sum(w for w, name in zip(weights, names, strict=True) if name == str(index)) <= cap * (1 + 1e-9)


def test_summary_of_errors():
    summary = errors.summarise([0.05, -0.10, 0.30], [1, 1, 2])
    assert summary.n == 3
    assert summary.median_abs_error == pytest.approx(0.20)  # half the weight lies at or below 0.10
    assert summary.unweighted_median_abs_error == pytest.approx(0.10)
    assert summary.worst_abs_error == pytest.approx(0.30)
    assert (summary.within_10, summary.within_25) == (0.5, 0.5)


def test_ratio_errors_ignore_a_common_factor():
    assert errors.ratio_errors([2, 4, 8], [1, 2, 4]) == [0.0, 0.0]
    assert errors.ratio_errors([1, 3], [1, 2]) == [pytest.approx(0.5)]
    assert errors.ratio_errors([], []) == []


def test_rank_correlation():
    assert errors.rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert errors.rank_correlation([3, 2, 1], [10, 20, 30]) == pytest.approx(-1)
    assert errors.rank_correlation([1, 1, 2], [1, 1, 2]) == pytest.approx(1)
    assert math.isnan(errors.rank_correlation([1, 1, 1], [1, 2, 3]))
    assert math.isnan(errors.rank_correlation([1, 2], [1, 2]))


def test_confusion_and_accuracy():
    table = errors.confusion([("fits", "fits"), ("fits", "does_not_fit"), ("does_not_fit", "does_not_fit")])
    assert table == {"fits": {"fits": 1, "does_not_fit": 1}, "does_not_fit": {"does_not_fit": 1}}
    assert errors.accuracy(table) == pytest.approx(2 / 3)


def test_a_measured_value_must_be_positive():
    assert errors.relative_error(3, 2) == pytest.approx(0.5)
    assert errors.relative_error(math.nan, 2) == math.inf
    with pytest.raises(ValueError, match="positive"):
        errors.relative_error(1, 0)
