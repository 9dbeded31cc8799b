"""Collectives whose size nothing tells: the guess gives their duration back on machines with such GPUs."""

from __future__ import annotations

import pytest

from sim.config import load_machine
from sim.interchange import kineto
from sim.interchange.kineto.collectives import bus_rate
from sim.study.survey import replay_s
from tests.kineto_sample import Sample


@pytest.mark.parametrize(
    ("gpu", "machine", "world"),
    [
        ("NVIDIA A100-SXM4-80GB", "dgx-a100", 8), ("NVIDIA A100-SXM4-80GB", "dgx-a100", 2),
        ("NVIDIA H100 80GB HBM3", "dgx-h100", 8), ("Tesla V100-SXM3-32GB", "dgx-2", 16),
    ],
)  # fmt: skip
def test_a_guessed_all_reduce_takes_about_as_long_as_recorded(gpu: str, machine: str, world: int) -> None:
    header = {"deviceProperties": [{"name": gpu, "totalGlobalMem": 85_000_000_000 if "A100" in gpu else 34_000_000_000}]}
    sample = Sample(**header, distributedInfo={"backend": "nccl", "rank": 0, "world_size": world})
    sample.step(0, 0, 20_500)
    sample.launch(10, 20, 20_000, name="ncclKernel_AllReduce_RING")
    sample.call("cudaDeviceSynchronize", 20, 20_005)
    step = kineto.step_from([kineto.read_rank(sample.to_bytes(), "t.json")])
    assert any(note == "collectives sized by duration: 1" for note in step.notes)
    assert replay_s(step, load_machine(machine)) == pytest.approx(step.source_step_s, rel=0.4)


def test_gpus_without_links_are_taken_to_use_pcie() -> None:
    assert bus_rate(["NVIDIA GeForce RTX 2080 Ti"]) < bus_rate(["Tesla V100-SXM2-16GB"]) < bus_rate(["NVIDIA A100-SXM4-40GB"])
    assert bus_rate([]) == bus_rate(["NVIDIA A100-SXM4-40GB"])
