"""What would have to be faster, and by how much."""

import math

import pytest

from sim.config import scenario_of
from sim.experiment import run
from sim.metrics.critical_path import launching_share
from sim.metrics.relief import factor_to_share, needed_bandwidth, relief_of
from sim.records import Channel, Program

PROGRAM = Program(
    name="p",
    channels=(Channel(name="dram", bandwidth_per_s=100e9), Channel(name="cores", bandwidth_per_s=8, unit="cores")),
    tiers=(),
    streams=(),
    operations=(),
)


def test_a_channel_needs_the_ratio_of_the_seconds():
    found = relief_of({"dram": 6.0, "gpu0.sm": 4.0, "overhead": 5.0}, PROGRAM)
    assert (found.resource, found.then, found.factor) == ("dram", "gpu0.sm", 1.5)
    assert found.bandwidth_bytes_per_s == 150e9


def test_cores_have_no_bandwidth_and_a_tie_needs_nothing():
    found = relief_of({"cores": 4.0, "dram": 4.0}, PROGRAM)
    assert found.factor == 1.0
    assert relief_of({"cores": 4.0, "gpu0.sm": 1.0}, PROGRAM).bandwidth_bytes_per_s == 0.0


def test_a_lone_owner_has_no_limit_and_overhead_alone_is_none():
    assert math.isinf(relief_of({"dram": 1.0, "overhead": 9.0}, PROGRAM).factor)
    assert relief_of({"overhead": 9.0}, PROGRAM) is None


def test_a_resource_this_much_faster_owns_the_share_and_no_more():
    factor = factor_to_share(6.0, 10.0, 0.1)
    assert 6.0 / factor == pytest.approx(0.1 * (4.0 + 6.0 / factor))
    assert factor_to_share(1.0, 10.0, 0.1) == 1.0
    assert factor_to_share(1.001, 10.0, 0.1) > 1.0
    assert math.isinf(factor_to_share(10.0, 10.0, 0.1))


def test_only_channels_of_bytes_have_a_needed_bandwidth():
    assert needed_bandwidth("dram", 1.5, PROGRAM) == 150e9
    assert needed_bandwidth("cores", 1.5, PROGRAM) == 0.0
    assert needed_bandwidth("gpu0.sm", 1.5, PROGRAM) == 0.0


@pytest.mark.parametrize(("framework", "stage", "low", "high"), [("megatron", 0, 0.9, 1.0), ("deepspeed-zero", 3, 0.0, 0.5)])
def test_overhead_of_a_small_model_is_launches_or_what_its_framework_does(framework, stage, low, high):
    """Megatron's CPU launches kernels all the time; ZeRO 3's hooks take longer than launching what they surround."""
    training = {
        "model": "gpt2", "sequence_length": 256, "batch_size": 1, "framework": framework,
        "parallelism": {"data": 8, "zero_stage": stage},
    }  # fmt: skip
    scenario = scenario_of({"name": "x", "topology": "dgx-h100", "workload": {"training": training}}).resolve()
    found = run(scenario, with_penalty=False)
    assert low <= launching_share(found.program, found.replay) <= high
