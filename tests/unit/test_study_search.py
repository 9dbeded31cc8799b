"""Searches: the best of the space, constraints kept, repeated exactly and resumed."""

import pytest

from sim.config.scenario_file import scenario_of
from sim.errors import InputError
from sim.study.search import Search, aim_of
from sim.study.study import Study

pytest.importorskip("optuna")
SHAPE = {"layers": 2, "hidden": 1024, "heads": 16, "ffn": 4096, "vocabulary": 32000}
SPACE = {
    "workload.training.batch_size": {"from": 1, "to": 8, "integer": True},
    "placement.optimizer_states": ["gpu", "dram"],
}
GRID = {**SPACE, "workload.training.batch_size": {"from": 1, "to": 8, "step": 1}}


def file_of(sweep=SPACE, **search):
    data = {
        "topology": "desktop-rtx-4090",
        "workload": {"training": {"model": SHAPE, "sequence_length": 512, "checkpointing": {"active": True}}},
        "sweep": sweep,
    }
    return scenario_of(data | ({"search": search} if search else {}), "space")


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    study = Study(file_of(GRID), tmp_path_factory.mktemp("grid"))
    study.run()
    return list(study.points())


def test_the_search_finds_the_best_of_the_grid(grid, tmp_path):
    search = Search(file_of(objective="tokens_per_s", trials=40, seed=3), tmp_path)
    search.run()
    assert search.best.value == max(point["tokens_per_s"] for point in grid if point["fits"])


def test_constraints_hold_at_the_best_point(grid, tmp_path):
    limit = sorted(point["step_time_s"] for point in grid)[3]
    search = Search(file_of(objective="tokens_per_s", trials=40, seed=3, constraints=[f"step_time_s <= {limit!r}"]), tmp_path)
    search.run()
    allowed = [point["tokens_per_s"] for point in grid if point["fits"] and point["step_time_s"] <= limit]
    assert search.best.value == max(allowed) < max(point["tokens_per_s"] for point in grid)


def test_nothing_counts_when_no_point_meets_the_constraint(tmp_path):
    search = Search(file_of(objective="tokens_per_s", trials=3, constraints=["step_time_s < 0"]), tmp_path)
    search.run()
    assert search.best is None


def test_a_search_repeats_and_runs_nothing_again(tmp_path):
    file = file_of(objective="step_time_s", trials=10, seed=5)
    first, second = Search(file, tmp_path), Search(file, tmp_path)
    first.run()
    tally = second.run()
    assert second.best == first.best
    assert (tally.num_run, tally.num_found) == (0, 10)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"objective": "speed"}, "unknown objective 'speed'"),
        ({"objective": "mfu", "trails": 3}, "unknown key"),
        ({"objective": "mfu", "trials": 0}, "whole number from 1"),
        ({"objective": "mfu", "constraints": ["import os"]}, "cannot read condition"),
    ],
)
def test_faults_of_the_block(search, words):
    with pytest.raises(InputError, match=words):
        aim_of(file_of(**search))
