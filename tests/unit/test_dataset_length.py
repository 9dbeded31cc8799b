"""Tokens of a data set whose samples differ in length."""

import random

import pytest

from sim.config import scenario_of
from sim.errors import InputError
from sim.study.budget import kept_tokens, mean_tokens, steps_of
from sim.workload.training import Length


@pytest.mark.parametrize(("mean", "spread", "limit"), [(500, 0.5, 1024), (1500, 1.0, 1024), (300, 2.0, 512)])
def test_kept_tokens_agree_with_drawn_samples(mean, spread, limit):
    import math

    sigma = math.sqrt(math.log(1 + spread**2))
    draw = random.Random(7)
    drawn = [min(draw.lognormvariate(math.log(mean) - sigma**2 / 2, sigma), limit) for _ in range(40_000)]
    assert kept_tokens(Length(mean=mean, spread=spread), limit) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)


def test_lengths_on_both_sides_of_the_sequence_length():
    assert kept_tokens("fixed", 1024) == mean_tokens("fixed", 1024) == 1024
    assert [kept_tokens(Length(mean=m), 1024) for m in (1023, 1024, 1025)] == [1023, 1024, 1024]
    assert kept_tokens(Length(mean=512, spread=1e-6), 1024) == pytest.approx(512)


def _training(dataset):
    job = {"model": "gpt2-xl", "sequence_length": 1024, "batch_size": 4, "dataset": dataset}
    inputs = {"name": "data", "topology": "h100-sxm-1x", "workload": {"training": job}}
    return scenario_of(inputs, file="test").resolve().job.workload


def test_packing_turns_short_samples_into_fewer_steps():
    data = {"samples": 4096, "epochs": 1, "length": {"mean": 256, "spread": 0.5}}
    assert steps_of(_training(data)) == 1024
    assert steps_of(_training(data | {"packing": True})) == 256
    assert steps_of(_training({"samples": 4096, "epochs": 1, "length": "fixed", "packing": True})) == 1024


def test_an_unknown_length_is_refused():
    with pytest.raises(InputError, match="length"):
        _training({"samples": 1, "length": "random"})
