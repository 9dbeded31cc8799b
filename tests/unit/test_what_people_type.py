"""Words that people type first, and what they read when nothing comes of it."""

from __future__ import annotations

import pytest

from sim.config import scenario_of
from sim.errors import InputError
from sim.report.findings import short_value
from sim.study.search import Search

TRAINING = {"model": "gpt2", "batch_size": 1, "sequence_length": 64}
BOX = "epyc-9554p-2x4090"


def test_a_question_may_be_a_key() -> None:
    assert scenario_of({"question": "how fast?\n", "training": TRAINING, "topology": BOX}).question == "how fast?"
    with pytest.raises(InputError, match="question: expected a sentence"):
        scenario_of({"question": 7, "training": TRAINING, "topology": BOX})


def test_jobs_may_say_training_themselves() -> None:
    jobs = [{"name": "one", "training": TRAINING}, {"name": "two", "workload": {"training": TRAINING}}]
    one, two = scenario_of({"topology": BOX, "jobs": jobs}).resolve().jobs
    assert one.workload == two.workload
    with pytest.raises(InputError, match="unknown key 'training'"):
        scenario_of({"topology": BOX, "jobs": [{"name": "one", "training": TRAINING, "workload": {"training": TRAINING}}]})


def test_a_faulty_machine_brings_no_fault_that_nobody_wrote() -> None:
    with pytest.raises(InputError) as raised:
        scenario_of({"training": TRAINING, "topology": {"base": BOX, "add": {"cxl0": {"part": "cxl-ddr5-256", "to": "cpu0"}}}})
    (fault,) = raised.value.faults
    assert "'cxl-expander-asic-x8'" in fault.remedy  # not a memory module that shares the words DDR5


@pytest.mark.parametrize(
    ("value", "shown"),
    [("30.1208719518%", "30.12%"), (0.30120871, "0.3012"), ("2.5 GB", "2.5 GB"), (8, "8"), ("pcie5.0", "pcie5.0")],
)
def test_drawn_numbers_are_shown_short(value: object, shown: str) -> None:
    assert short_value(value) == shown


def test_a_search_that_finds_nothing_says_what_stands_in_the_way(tmp_path) -> None:
    data = {"training": TRAINING, "topology": BOX, "sweep": {"workload.training.batch_size": [1, 2]}}
    search = Search(
        scenario_of(data | {"search": {"objective": "mfu", "constraints": ["tokens_per_s > 1e12"], "trials": 3}}), tmp_path
    )
    search.run()
    assert search.why_none().startswith(
        "no trial fits and meets the constraints: 3 fit; tokens_per_s > 1e12 fails in 3 of them ("
    )
