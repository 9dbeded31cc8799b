"""GPUs of a job: it sees those alone, shares the host with other jobs, and jobs on the same GPUs are told."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import load_machine, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.study.fit import assess, each_job
from sim.topology.view import job_view

TRAINING = {"model": "gpt2", "framework": "deepspeed-zero", "optimizer": {"offload": True}, "checkpointing": {"active": True}}


def job(name: str, gpus: Any = None, ranks: int = 2) -> dict[str, Any]:
    training = TRAINING | {"parallelism": {"data": ranks, "zero_stage": 2}}
    return {"name": name, "workload": {"training": training}} | ({"gpus": gpus} if gpus is not None else {})


def scenario(*jobs: dict[str, Any]) -> Any:
    return scenario_of({"topology": "rtx-4090-8x", "jobs": list(jobs)}, "case").resolve()


def test_a_job_sees_its_own_gpus_and_the_whole_host() -> None:
    whole = load_machine("rtx-4090-8x")
    view = job_view(whole, gpus=("gpu5", "gpu6"))
    assert view.gpus() == ("gpu5", "gpu6")
    assert set(whole.tiers) - set(view.tiers) == {f"gpu{i}.gddr" for i in (0, 1, 2, 3, 4, 7)}
    assert job_view(whole) == whole


@pytest.mark.parametrize("gpus", ["gpu[6-7]", ["gpu6", "gpu7"]])
def test_ranks_sit_on_the_named_gpus(gpus: Any) -> None:
    (alone,) = each_job(scenario(job("a", gpus)))
    assert set(assess(alone).tiers) == {"gpu6.gddr", "cpu1.dram"}


def test_jobs_on_gpus_of_their_own_lose_less_than_on_the_same_ones() -> None:
    same = run(scenario(job("a"), job("b")))
    apart = run(scenario(job("a", "gpu[0-1]"), job("b", "gpu[4-5]")))
    assert 1.0 <= apart.contention < same.contention
    assert any("a and b run on the same GPUs (gpu0, gpu1)" in note for note in same.assumptions)
    assert not any("same GPUs" in note for note in apart.assumptions)


def test_a_single_job_on_the_far_socket_runs_there() -> None:
    found = run(scenario(job("a", "gpu[4-5]")))
    assert {name.rpartition(":")[2] for name in found.summary.tiers} >= {"cpu1.dram", "gpu4.gddr"}


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (["gpu7", "gpu9"], "no GPU gpu9 on its host; its GPUs are gpu0, gpu1"),
        ("gpu0", "2 ranks, but the machine has 1 GPUs"),
        ([], "expected names of GPUs"),
        (3, "expected names of GPUs, got 3"),
    ],
)
def test_gpus_that_are_not_there_or_too_few_are_faults(gpus: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        scenario(job("a", gpus))
    assert message in str(error.value)
