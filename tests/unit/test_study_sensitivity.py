"""Sensitivity: every resource in one group, scaling does what it says, break-evens hold on both sides."""

import dataclasses
import math

import pytest

from sim.cli import run as tiersim
from sim.config.machine import load_machine
from sim.config.scenario_file import scenario_of
from sim.experiment import run
from sim.study.sensitivity import FREE_SHARE, BreakEven, Sensitivity, sensitivity
from sim.topology.scaling import Knob, knobs, scaled

DATA = {
    "topology": "epyc-9554p-2x4090",
    "workload": {
        "training": {
            "model": {"layers": 4, "hidden": 2048, "heads": 16, "ffn": 8192, "vocabulary": 32000},
            "sequence_length": 512,
            "parallelism": {"data": 2, "zero_stage": 2},
        }
    },
    "placement": {"optimizer_states": "dram"},
}


@pytest.fixture(scope="module")
def file():
    return scenario_of(DATA, "tiny")


@pytest.fixture(scope="module")
def study(file):
    return sensitivity(file, with_break_even=True)


def test_every_channel_tier_and_device_belongs_to_one_knob_per_quantity():
    machine = load_machine("epyc-9554p-2x4090")
    found = knobs(machine)
    assert len({knob.name for knob in found}) == len(found)
    for quantity in ("bandwidth", "cores"):
        named = [name for knob in found if knob.quantity == quantity for name in knob.channels]
        assert len(named) == len(set(named))
    covered = {name for knob in found if knob.quantity in ("bandwidth", "cores") for name in knob.channels}
    assert covered == set(machine.channels)
    assert {name for knob in found if knob.quantity == "capacity" for name in knob.tiers} == set(machine.tiers)
    assert {name for knob in found if knob.quantity == "compute" for name in knob.devices} == {"gpu0", "gpu1"}


def test_scaling_changes_its_resource_and_nothing_else():
    machine = load_machine("epyc-9554p-2x4090")
    for knob in knobs(machine):
        again = next(item for item in knobs(scaled(machine, knob, 3.0)) if item.name == knob.name)
        assert math.isclose(again.value, 3 * knob.value, rel_tol=1e-6), knob.name
        others = {item.name: item.value for item in knobs(machine) if item.name != knob.name}
        assert {item.name: item.value for item in knobs(scaled(machine, knob, 3.0)) if item.name != knob.name} == others
        assert scaled(machine, knob, 1.0).channels == machine.channels


def test_two_sided_changes_are_those_of_real_runs(file, study):
    scenario = file.resolve()
    row = next(row for row in study.rows if row.knob.name == "cpu0.dram bandwidth")
    base_s = run(scenario).summary.step_time_s
    assert study.step_time_s == base_s
    for factor, change in ((0.9, row.low), (1.1, row.high), (2.0, row.double)):
        machine = scaled(scenario.machine, row.knob, factor)
        seconds = run(dataclasses.replace(scenario, machine=machine)).summary.step_time_s
        assert seconds / base_s - 1 == change
    assert row.low > 0 > row.high
    assert row.elasticity < 0


def test_the_binding_resource_leads_and_idle_ones_are_worth_nothing(study):
    assert study.rows[0].reach == max(row.reach for row in study.rows)
    idle = next(row for row in study.rows if row.knob.name == "nvme0 bandwidth")
    assert (idle.low, idle.high, idle.double) == (0.0, 0.0, 0.0)
    assert study.finding.startswith("doubling ")


def test_break_evens_hold_on_both_sides(file, study):
    scenario = file.resolve()

    def at(knob, factor):
        return run(dataclasses.replace(scenario, machine=scaled(scenario.machine, knob, factor)))

    row = next(row for row in study.rows if row.knob.name == "cpu0.dram bandwidth")
    limit_s = at(row.knob, 64.0).summary.step_time_s * (1 + FREE_SHARE)
    assert at(row.knob, row.break_even.factor).summary.step_time_s <= limit_s
    assert at(row.knob, row.break_even.factor * 0.99).summary.step_time_s > limit_s
    memory = next(row for row in study.rows if row.knob.name == "gpu*.gddr capacity")
    assert at(memory.knob, memory.break_even.factor).fits
    assert not at(memory.knob, memory.break_even.factor * 0.99).fits


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.1, -0.1, True), (0.1, 0.02, False), (-0.1, -0.02, False), (0, 0, True)]
)
def test_non_monotone_answers_are_marked(low, high, expected):
    knob = Knob(owner="x", quantity="bandwidth", value=1.0)
    row = Sensitivity(knob=knob, low=low, high=high, double=0, fits_low=True, fits_high=True, elasticity=0)
    assert row.is_monotone is expected


def test_a_scan_that_crosses_twice_takes_the_last_crossing(monkeypatch):
    from sim.study import sensitivity as module

    knob = Knob(owner="x", quantity="bandwidth", value=1.0)

    class Runner:
        def ask(self, pairs):
            pass

        def at(self, name, factor):
            return (1.0 if factor >= 4.0 or 0.9 < factor < 1.1 else 2.0), True

    edge = module._break_evens([knob], Runner())["x bandwidth"]
    assert isinstance(edge, BreakEven)
    assert math.isclose(edge.factor, 4.0, rel_tol=0.01)
    assert not edge.is_single


def test_command_line(tmp_path, capsys):
    path = tmp_path / "tiny.yaml"
    import json

    path.write_text(json.dumps(DATA))
    assert tiersim(["sensitivity", str(path), "--out", str(tmp_path)]) == 0
    assert "cpu0.dram bandwidth" in capsys.readouterr().out
    assert (tmp_path / "tornado.png").stat().st_size > 5000
    assert tiersim(["sensitivity", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["resources"][0]["is_monotone"] is True
