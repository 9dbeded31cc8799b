"""The sweep grammar: what each form expands to, and what is refused."""

import pytest

from sim.config.overlay import overlaid
from sim.config.sweep import parse_sweep
from sim.errors import InputError


def points(raw, base=None):
    return [dict(point.parameters) for point in parse_sweep(raw, base)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([1, 2, 4], [1, 2, 4]),
        ({"from": 1, "to": 8, "step": 3}, [1, 4, 7]),
        ({"from": 1, "to": 7, "step": 3}, [1, 4, 7]),
        ({"from": 0, "to": 0.3, "step": 0.1}, [0, 0.1, 0.2, 0.3]),
        ({"from": 0, "to": 1, "points": 5}, [0, 0.25, 0.5, 0.75, 1]),
        ({"from": 4, "to": 16, "factor": 2}, [4, 8, 16]),
        ({"from": 1, "to": 1000, "points": 4, "scale": "log"}, [1, 10, 100, 1000]),
        ({"from": 1, "to": 8, "points": 15, "integer": True}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"from": "8 GB/s", "to": "24 GB/s", "step": "8 GB/s"}, ["8 GB/s", "16 GB/s", "24 GB/s"]),
        ({"from": "512 MB/s", "to": "2.048 GB/s", "factor": 2}, ["512 MB/s", "1024 MB/s", "2048 MB/s"]),
        ({"from": "0%", "to": "100%", "step": "50%"}, ["0%", "50%", "100%"]),
    ],
)
def test_one_path(raw, expected):
    assert [point["a.b"] for point in points({"a.b": raw})] == expected
    types = [type(point["a.b"]) for point in points({"a.b": raw})]
    assert types == [type(value) for value in expected]


def test_axes_multiply_and_the_last_varies_fastest():
    assert points({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_zip_advances_together_and_multiplies_with_the_rest():
    sweep = parse_sweep({"c": [0, 1], "zip": {"a": [1, 2], "b": {"from": 10, "to": 20, "step": 10}}})
    assert sweep.num_points == 4
    assert [(p.overlay["c"], p.overlay["a"], p.overlay["b"]) for p in sweep] == [(0, 1, 10), (0, 2, 20), (1, 1, 10), (1, 2, 20)]


def test_choices_show_their_name_and_set_their_block():
    raw = {"choices": {"machine": {"today": {"topology": "a"}, "later": {"topology": "b", "placement.weights": "dram"}}}}
    today, later = parse_sweep(raw)
    assert (today.parameters, today.overlay) == ({"machine": "today"}, {"topology": "a"})
    assert (later.parameters, later.overlay) == ({"machine": "later"}, {"topology": "b", "placement.weights": "dram"})


def test_blocks_in_a_list_get_a_readable_unique_label():
    raw = {
        "placement": [
            "x",
            {"optimizer_states": {"dram": "60%", "cxl0": "40%"}},
            {"label": "mine", "value": {"weights": "dram"}},
        ]
    }
    sweep = list(parse_sweep(raw))
    assert [point.parameters["placement"] for point in sweep] == ["x", "optimizer_states (dram 60%, cxl0 40%)", "mine"]
    assert sweep[2].overlay["placement"] == {"weights": "dram"}


def test_skip_sees_swept_values_the_file_and_quantities():
    base = {"workload": {"training": {"batch_size": 3}}, "limit": "1 TB"}
    raw = {"a": [1, 2, 3, 4], "skip": ["a > workload.training.batch_size", "a * 2 == 4"]}
    assert points(raw, base) == [{"a": 1}, {"a": 3}]
    assert points({"size": ["900 GiB", "960 GiB"], "skip": "size > limit"}, base) == [{"size": "900 GiB"}]
    assert points({"a": [1, 2], "skip": "nothing.here == None and a in [2]"}) == [{"a": 1}]


def test_latin_hypercube_has_one_point_in_every_stratum_of_every_axis():
    raw = {
        "a": {"from": 0, "to": 10},
        "b": {"from": "1 GB/s", "to": "100 GB/s", "scale": "log"},
        "c": ["x", "y"],
        "sample": {"points": 10, "seed": 3},
    }
    drawn = points(raw)
    assert sorted(int(point["a"]) for point in drawn) == list(range(10))
    assert sum(point["c"] == "x" for point in drawn) == 5
    assert sum(float(point["b"].split()[0]) < 10 for point in drawn) == 5
    assert drawn == points(raw)
    assert drawn != points({**raw, "sample": {"points": 10, "seed": 4}})


def test_random_sampling_stays_inside_and_repeats_with_its_seed():
    raw = {"a": {"from": 2, "to": 5, "integer": True}, "sample": {"method": "random", "points": 50, "seed": 1}}
    drawn = [point["a"] for point in points(raw)]
    assert set(drawn) == {2, 3, 4, 5}
    assert drawn == [point["a"] for point in points(raw)]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([], "a sweep is a mapping"),
        ({}, "names no path"),
        ({"a": []}, "expected a list or a range"),
        ({"a": 3}, "expected a list or a range"),
        ({"a": [1, 1]}, "listed twice"),
        ({"a": {"from": 1, "to": 8}}, "exactly one of step, factor, points"),
        ({"a": {"from": 8, "to": 1, "step": 1}}, "empty range"),
        ({"a": {"from": 1, "to": 8, "step": 0}}, "step must be positive"),
        ({"a": {"from": 1, "to": 8, "step": "nan"}}, "expected a number"),
        ({"a": {"from": 0, "to": 8, "factor": 2}}, "positive ends"),
        ({"a": {"from": 1, "to": 8, "factor": 1}}, "factor must be"),
        ({"a": {"from": 0, "to": 1e12, "step": 1}}, "values in one range"),
        ({"a": {"from": "1 GB/s", "to": "8 GiB", "step": "1 GB/s"}}, "not in the unit"),
        ({"a": {"from": "1 GB/s", "to": "8 GB/s", "step": 1}}, "not in the unit"),
        ({"a": {"from": 1, "to": 8, "points": 1}}, "points must be"),
        ({"zip": {"a": [1, 2], "b": [1]}}, "differ in length"),
        ({"a": [1], "zip": {"a": [1, 2], "b": [1, 2]}}, "set by two axes"),
        ({"choices": {"m": {"x": "a"}}}, "an option sets paths"),
        ({"a": [1], "skip": "__import__('os').system('true')"}, "not allowed"),
        ({"a": [1], "skip": "a ** 9"}, "not allowed"),
        ({"a": [1], "skip": "a >"}, "cannot read condition"),
        ({"a": [1], "sample": {"points": 0}}, "from 1 up"),
        ({"a": [1], "sample": {"points": 3, "method": "sobol"}}, "unknown method"),
    ],
)
def test_refused_with_a_reason(raw, said):
    with pytest.raises(InputError, match=said):
        parse_sweep(raw)


@pytest.mark.parametrize("skip", ["a / 0 > 1", "a + 'x' == 1"])
def test_a_condition_that_has_no_value_is_an_input_error(skip):
    with pytest.raises(InputError, match="cannot be evaluated"):
        list(parse_sweep({"a": [1], "skip": skip}))


def test_all_faults_at_once():
    with pytest.raises(InputError) as caught:
        parse_sweep({"a": [], "b": {"from": 1, "to": 0, "step": 1}, "skip": "1 +"})
    assert [fault.path for fault in caught.value.faults] == ["sweep.a", "sweep.b", "sweep.skip[0]"]


def test_overlay_sets_paths_without_touching_the_original():
    document = {"topology": "box", "workload": {"training": {"batch_size": 1, "model": "m"}}}
    changed = overlaid(
        document, {"topology.gpu1.link.lanes": 8, "workload.training.batch_size": 4, "placement.weights": "dram"}
    )
    assert changed == {
        "topology": {"base": "box", "set": {"gpu1.link.lanes": 8}},
        "workload": {"training": {"batch_size": 4, "model": "m"}},
        "placement": {"weights": "dram"},
    }
    assert document == {"topology": "box", "workload": {"training": {"batch_size": 1, "model": "m"}}}


def test_overlay_applies_blocks_before_what_refines_them():
    changed = overlaid({"topology": "a"}, {"topology.gpu1.link.lanes": 8, "topology": {"base": "b", "set": {"x": 1}}})
    assert changed["topology"] == {"base": "b", "set": {"x": 1, "gpu1.link.lanes": 8}}


def test_overlay_refuses_a_path_through_a_scalar():
    with pytest.raises(InputError, match="cannot set a value inside 'dram'"):
        overlaid({"placement": "dram"}, {"placement.weights": "gpu"})


def test_a_path_may_name_a_job_or_all_jobs() -> None:
    from sim.config.overlay import overlaid

    jobs = {"jobs": [{"name": "a", "start": 0}, {"start": 0}]}
    assert overlaid(jobs, {"jobs.job1.start": 2})["jobs"] == [{"name": "a", "start": 0}, {"start": 2}]
    assert overlaid(jobs, {"jobs.*.start": 2, "jobs.a.placement.weights": "dram"})["jobs"] == [
        {"name": "a", "start": 2, "placement": {"weights": "dram"}},
        {"start": 2},
    ]
    with pytest.raises(InputError, match=r"jobs\.b\.start: no job is named 'b'; jobs are a, job1; '\*' means all"):
        overlaid(jobs, {"jobs.b.start": 2})


@pytest.mark.parametrize("skip", ["workload.training.batchsize > 1", "workload.training.batchsize == 2", "not b"])
def test_a_condition_on_what_is_neither_swept_nor_written_is_refused(skip):
    sweep = {"workload.training.batch_size": [1, 2], "skip": [skip]}
    with pytest.raises(InputError, match="is swept or in this file"):
        parse_sweep(sweep, {})


def test_a_condition_may_ask_for_a_value_inside_a_swept_block():
    raw = {"choices": {"where": {"a": {"placement": {"weights": "dram"}}, "b": {"placement": {"weights": "gpu"}}}}}
    kept = list(parse_sweep(raw | {"skip": ["placement.weights == 'gpu'"]}, {}))
    assert [point.parameters for point in kept] == [{"where": "a"}]
