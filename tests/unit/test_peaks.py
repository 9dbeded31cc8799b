"""Peaks of a run: the capacity plan speaks for all GPUs that do the same, however they are folded."""

import pytest

from sim.config import scenario_of
from sim.experiment import run


def _gpu_peaks(**parallelism):
    training = {"model": "gpt2-xl", "sequence_length": 512, "framework": "pytorch", "parallelism": parallelism}
    block = {"name": "peaks", "topology": "dgx-a100", "workload": {"training": training}}
    tiers = run(scenario_of(block).resolve(), with_penalty=False).summary.tiers
    return {name: tier for name, tier in tiers.items() if name.startswith("gpu")}


def test_gpus_of_both_sockets_need_the_same():
    peaks = _gpu_peaks(data=8)
    assert sum(tier.multiplicity for tier in peaks.values()) == 8
    assert len({round(tier.peak_bytes) for tier in peaks.values()}) == 1
    assert all(tier.peak_phase for tier in peaks.values())


def test_the_largest_pipeline_stage_does_not_speak_for_the_others():
    peaks = sorted(tier.peak_bytes for tier in _gpu_peaks(pipeline=4).values())
    assert peaks[0] < 0.95 * peaks[-1]


@pytest.mark.parametrize("ranks", [1, 4])
def test_gpus_without_a_rank_stay_empty(ranks):
    used = [tier for tier in _gpu_peaks(data=ranks).values() if tier.peak_bytes]
    assert sum(tier.multiplicity for tier in used) == ranks
