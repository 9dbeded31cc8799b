"""Results and studies from Python: frames, notebook views, axes."""

import pytest

from sim.config.scenario_file import scenario_of
from sim.experiment import run
from sim.study.pool import Serial
from sim.study.study import Study

SHAPE = {"layers": 2, "hidden": 512, "heads": 8, "ffn": 2048, "vocabulary": 32000}
DATA = {
    "topology": "desktop-rtx-4090",
    "workload": {"training": {"model": SHAPE, "sequence_length": 256}},
    "sweep": {"workload.training.batch_size": [1, 2, 4]},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Study(scenario_of(DATA, "tiny"), tmp_path_factory.mktemp("study"))
    made.run(Serial())
    return made


@pytest.fixture(scope="module")
def result(study):
    return run(study.file.resolve())


def test_frames_hold_every_row(study, result):
    pytest.importorskip("pandas")
    points = study.to_pandas()
    assert list(points["parameters.workload.training.batch_size"]) == [1, 2, 4]
    assert (points["step_time_s"] > 0).all()
    operations = result.to_pandas()
    assert len(operations) == len(result.replay.operations)
    assert operations["end_s"].max() == pytest.approx(result.summary.step_time_s)
    assert set(operations["category"]) >= {"compute"}


def test_notebook_views_state_the_verdict(study, result):
    assert "Fits." in result._repr_html_()
    assert study._repr_html_().count("<tr>") == 1 + 3


def test_plots_are_axes_with_units(study, result):
    assert study.plot().get_ylabel() == "throughput (tokens/s)"
    assert study.plot("step_time_s").get_ylabel() == "step time (s)"
    assert result.plot_step().get_xlabel().startswith("time in the step (")
    assert "step" in result.plot_breakdown().get_xlabel()
    assert result.plot_memory().get_xlabel().startswith("peak bytes")
