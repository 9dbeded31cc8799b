"""Roadmap scenarios: every point resolves, and what is not built says why it is believed possible."""

from pathlib import Path

import pytest

from sim.config.scenario_file import load_scenario

ROADMAP = sorted((Path(__file__).parents[2] / "scenarios" / "roadmap").glob("*.yaml"))


def test_the_questions_are_there():
    assert {path.stem for path in ROADMAP} == {"training-13b", "training-70b", "inference-70b", "node-70b"}


@pytest.mark.parametrize("path", ROADMAP, ids=lambda path: path.stem)
def test_every_point_resolves_and_states_its_basis(path):
    for scenario in load_scenario(path).expand():
        (label,) = scenario.parameters.values()
        unbuilt = [device for device in scenario.machine.devices.values() if device.is_hypothetical]
        assert bool(unbuilt) == (int(label[:4]) > 2026), label
        assert all(device.part["basis"] for device in unbuilt)
