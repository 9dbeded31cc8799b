"""Studies: each point once, the same from every backend, resumed after any death."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from sim.config.scenario_file import load_scenario, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.study.identity import plan_fingerprint, result_key
from sim.study.pool import Processes, Serial
from sim.study.store import Store
from sim.study.study import Study

SHAPE = {"layers": 4, "hidden": 1024, "heads": 16, "ffn": 4096, "vocabulary": 32000}
DATA = {
    "topology": "desktop-rtx-4090",
    "workload": {"training": {"model": SHAPE, "sequence_length": 512, "checkpointing": {"active": True}}},
    "sweep": {
        "workload.training.model": [{"label": "tiny", "value": SHAPE}, "llama-2-70b"],
        "placement.optimizer_states": ["gpu", "dram", "cxl"],
        "workload.training.batch_size": [1, 2, 3, 4],
    },
}


def file_of(**changes):
    return scenario_of({**DATA, **changes}, "tiny")


def long_file(num_sizes):
    """A study of 6 points per batch size."""
    return file_of(sweep={**DATA["sweep"], "workload.training.batch_size": {"from": 1, "to": num_sizes, "step": 1}})


def rows(study):
    return [(row.position, row.key, row.status, row.reason, row.point) for row in study.outcomes()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    study = Study(file_of(), tmp_path_factory.mktemp("study"))
    tally = study.run(Serial())
    return study, tally


def test_every_point_is_a_row_with_its_reason(undisturbed):
    study, tally = undisturbed
    assert (tally.num_points, tally.num_run) == (24, 24)
    assert tally.counts == {"fits": 8, "does_not_fit": 8, "invalid": 8}
    by_status = {row.status: row for row in study.outcomes()}
    assert "gpu0.gddr needs" in by_status["does_not_fit"].reason
    assert "cxl" in by_status["invalid"].reason
    assert by_status["fits"].reason == ""


def test_a_point_is_bit_for_bit_what_a_single_run_gives(undisturbed):
    study, _ = undisturbed
    for row, assignment in list(zip(study.outcomes(), study.assignments(), strict=True))[::5]:
        if row.status in ("fits", "does_not_fit"):
            single = run(study.file.resolve(assignment.overlay, assignment.parameters))
            assert row.point == msgspec.json.encode(single.point())


def test_processes_agree_with_serial(undisturbed, tmp_path):
    other = Study(file_of(), tmp_path)
    other.run(Processes(2))
    assert rows(other) == rows(undisturbed[0])


@pytest.mark.slow
def test_dask_agrees_with_serial(undisturbed, tmp_path):
    pytest.importorskip("distributed")
    from sim.study.cluster import Dask

    other = Study(file_of(), tmp_path)
    other.run(Dask("local:2"))
    assert rows(other) == rows(undisturbed[0])


def test_a_finished_study_runs_nothing_again(undisturbed):
    study, _ = undisturbed
    again = Study(file_of(), study.folder).run(Serial())
    assert (again.num_found, again.num_run, again.counts) == (24, 0, {"fits": 8, "does_not_fit": 8, "invalid": 8})


def test_a_changed_file_runs_only_what_changed(undisturbed, tmp_path):
    study = Study(file_of(), tmp_path)
    study.run(Serial())
    sweep = {**DATA["sweep"], "workload.training.batch_size": [1, 8]}
    changed = Study(file_of(sweep=sweep), tmp_path)
    tally = changed.run(Serial())
    assert tally.num_points == 12
    new = [row for row in changed.outcomes() if row.parameters["workload.training.batch_size"] == 8]
    assert tally.num_run == len(new) + 2  # new batch size, and what could not be resolved is tried under the new file
    assert [row.summary["parameters"] for row in changed.outcomes()] == [dict(a.parameters) for a in changed.assignments()]


def test_keys_ignore_names_and_see_every_input():
    file = file_of()
    key = result_key(file.resolve())
    assert key == result_key(file.resolve(parameters={"other": 1}))
    assert key == result_key(scenario_of(DATA, "renamed").resolve())
    for overlay in (
        {"workload.training.batch_size": 2},
        {"placement.optimizer_states": "dram"},
        {"topology.gpu0.link.lanes": 8},
        {"workload.training.model": {**SHAPE, "layers": 5}},
        {"options.is_folded": False},
    ):
        assert key != result_key(file.resolve(overlay)), overlay


def test_a_fingerprint_sees_the_files_that_a_file_names(tmp_path):
    machine = tmp_path / "machine.yaml"
    original = (Path(__file__).parents[2] / "topologies" / "desktop-rtx-4090.yaml").read_text()
    machine.write_text(original)
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "topology: machine.yaml\nworkload: {training: {model: llama-2-7b}}\nsweep: {workload.training.batch_size: [1, 2]}\n"
    )
    before = plan_fingerprint(load_scenario(scenario))
    assert before == plan_fingerprint(load_scenario(scenario))
    machine.write_text(original + "\n# changed\n")
    assert before != plan_fingerprint(load_scenario(scenario))


def test_results_that_were_never_made_are_an_input_error(tmp_path):
    Study(file_of(), tmp_path).run(Serial())
    with pytest.raises(InputError, match="run the study first"):
        list(Study(file_of(sweep={"workload.training.batch_size": [3]}), tmp_path).outcomes())


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from test_study_resume import long_file
from sim.study.pool import Processes
from sim.study.study import Study
if __name__ == "__main__":
    Study(long_file(int(sys.argv[3])), sys.argv[1]).run(Processes(2))
"""


def _started(folder, num_sizes):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    script = Path(folder) / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(folder), str(Path(__file__).parent), str(num_sizes)]
    return subprocess.Popen(command, env=environment)


def _progress(folder, num_sizes):
    try:
        with Store(folder, is_read_only=True) as store:
            return len(store.finished(Study(long_file(num_sizes), folder).plan))
    except InputError:
        return 0


def _await_progress(process, folder, num_sizes, before):
    """Until more points than `before` are written, or all are."""
    end = time.monotonic() + 120.0
    while process.poll() is None and time.monotonic() < end and _progress(folder, num_sizes) <= before:
        time.sleep(0.02)


@pytest.mark.parametrize(("num_kills", "num_sizes"), [(2, 30), pytest.param(20, 400, marks=pytest.mark.slow)])
def test_killed_runs_lose_nothing_and_corrupt_nothing(tmp_path, num_kills, num_sizes):
    draw = random.Random(num_kills)
    seen = [0]
    for turn in range(num_kills):
        process = _started(tmp_path, num_sizes)
        if turn % 2:
            time.sleep(draw.uniform(0.2, 1.6))  # anywhere, also while it starts
        else:
            _await_progress(process, tmp_path, num_sizes, seen[-1])
            time.sleep(draw.uniform(0.0, 0.1))  # while points are written
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen.append(_progress(tmp_path, num_sizes))
    assert seen == sorted(seen)
    study = Study(long_file(num_sizes), tmp_path / "killed")
    assert 0 < seen[1] < study.num_points  # the first kill came in the middle
    (tmp_path / "killed").mkdir()
    for file in tmp_path.glob("study.sqlite*"):
        file.rename(tmp_path / "killed" / file.name)
    tally = study.run(Serial())
    assert tally.num_found >= seen[-1]
    whole = Study(long_file(num_sizes), tmp_path / "whole")
    whole.run(Serial())
    assert rows(study) == rows(whole)
    with Store(study.folder) as store:
        assert store.check() == "ok"


@pytest.mark.slow
def test_two_runs_into_one_folder(tmp_path):
    both = [_started(tmp_path, 20), _started(tmp_path, 20)]
    assert [process.wait(120) for process in both] == [0, 0]
    whole = Study(long_file(20), tmp_path / "whole")
    whole.run(Serial())
    assert rows(Study(long_file(20), tmp_path)) == rows(whole)
