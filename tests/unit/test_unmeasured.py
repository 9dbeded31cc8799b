"""A memory without a measurement: what is assumed of it has a range, and the range reaches the step time."""

import pytest

from sim.config.machine import load_machine, machine_from
from sim.config.scenario_file import load_scenario
from sim.config.yaml_source import parse_yaml
from sim.experiment.running import run
from sim.metrics.uncertainty import Band

SCENARIO = """
name: m
topology:
  devices:
    cpu0: {{part: xeon-6980p, memory: {{part: {part}, channels: {channels}, capacity: 768 GiB}}}}
    gpu0: {{part: h100-pcie, to: cpu0}}
workload:
  training:
    model: llama-2-7b
    sequence_length: 1024
    batch_size: 1
    framework: deepspeed-zero
    optimizer: {{type: adamw, offload: true}}
    checkpointing: {{active: true}}
"""


def ran(tmp_path, part, channels=12):
    path = tmp_path / "m.yaml"
    path.write_text(SCENARIO.format(part=part, channels=channels))
    (point,) = load_scenario(path).expand()
    return run(point)


def test_mrdimm_reaches_the_result_with_its_range(tmp_path):
    result = ran(tmp_path, "mrdimm-8800", channels=2)
    plain = ran(tmp_path, "ddr5-6400-2r", channels=2)
    assert result.band.high > plain.band.high
    assert 0.0 < plain.band.low < result.band.low < 1.0
    assert "over the assumed bandwidths of cpu0.dram" in result.band.basis
    assert any("0.8 of the peak (0.7 to 0.88)" in line for line in result.assumptions)
    assert not any("is known here" in line for line in plain.assumptions)


def test_only_unmeasured_memories_have_a_range():
    machine = load_machine("xeon-6980p-2s-mrdimm")
    assert machine.bandwidth_ranges == {tier: pytest.approx((0.875, 1.1)) for tier in ("cpu0.dram", "cpu1.dram")}
    assert load_machine("xeon-8480-2s").bandwidth_ranges == {}
    text = "devices: {cpu0: {part: epyc-9554p, memory: {part: ddr5-4800-2r, channels: 12, capacity: 384 GiB}}}"
    assert machine_from(parse_yaml(text, "m.yaml")).bandwidth_ranges == {}


def test_a_band_covers_both_ends():
    band = Band(low=0.1, high=0.2, basis="b").over(10.0, 8.0, 15.0, "why")
    seen = band.around(10.0)
    assert seen["low_s"] == pytest.approx(7.2)
    assert seen["high_s"] == pytest.approx(18.0)
    assert band.basis == "b; why"
