"""Which pictures a sweep gets: maps, crossovers, throughput against power."""

import pytest

from sim.cli.sweep_pictures import _ratios, draw_pictures
from sim.config.results_folder import ResultsFolder
from sim.config.scenario_file import scenario_of
from sim.report.curves import sweep_figure
from sim.report.pareto import pareto_figure, pareto_front
from sim.study.pool import Serial
from sim.study.study import Study

SHAPE = {"layers": 2, "hidden": 512, "heads": 8, "ffn": 2048, "vocabulary": 32000}
BATCH, LENGTH, STATES = (
    "workload.training.batch_size", "workload.training.sequence_length", "placement.optimizer_states",
)  # fmt: skip


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ({BATCH: [1, 2, 3]}, {"machine.png"}),
        ({BATCH: [1, 2, 3], LENGTH: [128, 256]}, {"machine.png"}),
        ({BATCH: [1, 2, 3], LENGTH: [128, 256, 384]}, {"machine.png", "map.png"}),
        ({BATCH: [1, 2, 3], LENGTH: [128, 256, 384], STATES: ["gpu", "dram"]}, {"machine.png", "crossover.png"}),
        ({"topology": ["desktop-rtx-4090", "h100-sxm-1x", "a100-80gb-1x"]}, {"pareto.png"}),
    ],
)
def test_pictures_of_a_sweep(sweep, expected, tmp_path):
    data = {
        "topology": "desktop-rtx-4090",
        "workload": {"training": {"model": SHAPE, "sequence_length": 128}},
        "sweep": sweep,
    }
    study = Study(scenario_of(data, "pictures"), tmp_path / "pictures")
    study.run(Serial())
    results = ResultsFolder(study.folder)
    draw_pictures(study, results)
    assert set(results.written) == {"sweep.png", "sweep-throughput.png"} | expected
    assert all((study.folder / name).stat().st_size > 10_000 for name in results.written)


def test_a_ratio_needs_both_choices_to_fit():
    def point(column, choice, seconds):
        return {"parameters": {"c": column, "r": 1, "p": choice}, "fits": seconds is not None, "step_time_s": seconds}

    points = [point(1, "a", 2.0), point(1, "b", 3.0), point(2, "a", None), point(2, "b", 3.0)]
    assert _ratios(points, "c", "r", "p", ["a", "b"]) == {(1, 1): 1.5, (2, 1): None}


def test_the_front_and_the_numbers_of_its_points():
    points = [("b", 2.0, 5.0, "", False), ("a", 1.0, 1.0, "", False), ("worse", 3.0, 5.0, "", True)]
    assert pareto_front([(x, y) for _name, x, y, _group, _hypothetical in points]) == [1, 0]
    figure = pareto_figure(points, cost="W", gain="tokens/s", finding="f")
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "2", "3"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["1  a", "2  b", "3  worse (not built yet)"]


@pytest.mark.parametrize(
    ("values", "label", "places"),
    [
        (["64 GiB", "128 GiB", "256 GiB"], "cpu0.memory.capacity (GiB)", [64.0, 128.0, 256.0]),
        (["512 GiB", "1 TiB"], "cpu0.memory.capacity", [0.0, 1.0]),  # in file order: 1 TiB is not less than 512 GiB
    ],
)
def test_the_axis_of_a_sweep_tells_its_unit_and_never_mixes_two(values, label, places):
    points = [
        {"parameters": {"topology.cpu0.memory.capacity": value, "kind": kind}, "fits": True, "step_time_s": 1.0}
        for value in values
        for kind in "ab"
    ]
    axes = sweep_figure("s", points, "step_time_s").axes[0]
    assert axes.get_xlabel() == label
    assert list(axes.lines[0].get_xdata()) == places


@pytest.mark.parametrize(("num_lengths", "num_panels"), [(2, 1), (20, 2)])
def test_draws_get_a_panel_per_parameter_and_grids_get_lines(num_lengths: int, num_panels: int) -> None:
    points = [
        {
            "parameters": {
                "topology.cpu0.taken": f"{index}.123456%",
                "workload.training.sequence_length": 512 + index % num_lengths,
            },
            "fits": index != 3,
            "tokens_per_s": 100.0 + index,
        }
        for index in range(20)
    ]
    fig = sweep_figure("demo", points, "tokens_per_s")
    assert len(fig.axes) == num_panels
    if num_panels > 1:
        assert [axes.get_xlabel() for axes in fig.axes] == ["cpu0.taken (%)", "sequence_length"]
        assert [len(axes.lines[0].get_xdata()) for axes in fig.axes] == [19, 19]
        assert fig._suptitle.get_text().replace("\n", " ").startswith("demo: throughput is highest at cpu0.taken 19.12%,")


def _two_lines(most_s, misfits):
    times = {(name, x): 1.0 if name == "a" else most_s for name in "ab" for x in (1, 2)}
    return [
        {
            "parameters": {"workload.training.batch_size": x, "placement.weights": name},
            "fits": (name, x) not in misfits,
            "step_time_s": None if (name, x) in misfits else seconds,
        }
        for (name, x), seconds in times.items()
    ]


@pytest.mark.parametrize(("most_s", "scale", "unit"), [(50.0, "linear", "(s)"), (50.1, "log", "(s, logarithmic)")])
def test_lines_far_apart_get_a_logarithmic_axis(most_s, scale, unit):
    axes = sweep_figure("s", _two_lines(most_s, ()), "step_time_s").axes[0]
    assert axes.get_yscale() == scale
    assert axes.get_ylabel().endswith(unit)
    assert (axes.get_ylim()[0] == 0.0) == (scale == "linear")


def test_a_point_that_does_not_fit_is_crossed_out_in_the_colour_of_its_line():
    axes = sweep_figure("s", _two_lines(2.0, {("a", 2), ("b", 2), ("b", 1)}), "step_time_s").axes[0]
    colours = {line.get_color() for line in axes.lines if line.get_marker() != "x"}
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert {line.get_color() for line in crosses} == colours
    assert [len(line.get_xdata()) for line in crosses] == [1, 2]
    assert crosses[0].get_ydata()[0] < crosses[1].get_ydata()[-1], "two at one place stand above each other"
