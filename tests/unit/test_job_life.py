"""Jobs over several steps: what they allocate, grow by and release, one after the other, and what the pool grants meanwhile."""

import pytest

from sim.config import load_scenario, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.program.life import lived, step_ends

GIB = 2.0**30
TRAINING = {
    "model": "llama-3.2-1b", "sequence_length": 512, "batch_size": 1, "framework": "fsdp", "checkpointing": {"active": True},
    "parallelism": {"zero_stage": 3},
}  # fmt: skip


def job(name, host, **more):
    return {"name": name, "host": host, "workload": {"training": TRAINING}, "placement": {"optimizer_states": "pool0"}, **more}


def together(*jobs, capacity="2048 GiB"):
    topology = {"base": "cxl3-pool-4-hosts", "set": {"pool0.capacity": capacity}}
    return run(scenario_of({"topology": topology, "jobs": list(jobs)}).resolve(), with_penalty=False)


def test_steps_in_a_row_take_as_long_as_one_each():
    once, thrice = together(job("a", "host0")), together(job("a", "host0", steps=3), job("b", "host1"))
    a = thrice.jobs[0]
    assert len(a.steps_s) == 3
    assert a.steps_s == pytest.approx([once.summary.step_time_s] * 3, rel=2e-3)
    assert sum(a.steps_s) == pytest.approx(3 * a.summary.step_time_s)
    assert sum(a.summary.breakdown_s.values()) == pytest.approx(a.summary.step_time_s)
    assert a.contention == pytest.approx(1.0, abs=2e-3)
    assert thrice.jobs[1].steps_s == pytest.approx([thrice.jobs[1].summary.step_time_s])


def test_a_job_alone_has_a_life_too():
    result = together(job("a", "host0", steps=2))
    assert len(result.jobs[0].steps_s) == 2
    assert result.fits


def test_optimizer_states_are_asked_for_in_the_first_update_and_given_back_at_the_end():
    result = together(job("a", "host0", steps=2), job("b", "host1", steps=2, after="a"))
    rows = [row for row in result.replay.occupancy if row.tier == "pool0@host0" and row.tensor_class == "optimizer_states"]
    first_step = result.jobs[0].steps_s[0]
    assert 0.0 < rows[0].time_s < first_step
    assert rows[-1].size_bytes == 0.0
    assert rows[-1].time_s == pytest.approx(sum(result.jobs[0].steps_s), rel=1e-6)
    assert result.pools["pool0"].num_grants == 4  # weights and gradients of each job, then its states


def test_a_job_after_another_begins_when_that_one_has_ended_and_needs_the_pool_once():
    result = together(job("a", "host0", steps=2), job("b", "host1", after="a"))
    pool = result.pools["pool0"]
    assert pool.peak_bytes == pytest.approx(pool.own_peaks_bytes / 2)
    assert result.summary.step_time_s == pytest.approx(sum(map(sum, (item.steps_s for item in result.jobs))), rel=1e-3)
    later = together(job("a", "host0"), job("b", "host1", after="a", start="5 s"))
    assert later.summary.step_time_s == pytest.approx(5.0 + sum(map(sum, (item.steps_s for item in later.jobs))), rel=1e-3)


def test_growth_into_an_exhausted_pool_waits_for_the_neighbour_to_end():
    roomy = together(job("a", "host0", steps=2), job("b", "host1", steps=2, start="10 ms"))
    need = roomy.pools["pool0"].hosts["host0"]
    extents = -(-need // GIB)
    short = together(job("a", "host0", steps=2), job("b", "host1", steps=2, start="10 ms"), capacity=f"{2 * extents - 1} GiB")
    assert short.fits
    waited = short.jobs[1].steps_s[0] - roomy.jobs[1].steps_s[0]
    assert waited == pytest.approx(sum(short.jobs[0].steps_s), rel=0.1)  # it computes meanwhile until its update
    assert short.jobs[1].steps_s[1] == pytest.approx(roomy.jobs[1].steps_s[1], rel=0.02)  # once it has its memory, all is well
    assert short.pools["pool0"].num_releases > 0


def test_the_life_of_jobs_in_a_pool_saves_more_for_less_when_shifted():
    points = {}
    for scenario in load_scenario("tiers/pool-life").expand():
        size, phase = (str(value) for value in scenario.parameters.values())
        if size in ("512 GiB", "256 GiB", "128 GiB"):
            points[size, phase] = run(scenario, with_penalty=False)
    saved = {key: result.point()["host_memory"]["saved"] for key, result in points.items() if result.fits}
    mean = {key: sum(item.contention for item in result.jobs) / len(result.jobs) for key, result in points.items()}
    assert saved["512 GiB", "in phase"] == pytest.approx(0.0, abs=1e-9)
    assert saved["256 GiB", "shifted"] == pytest.approx(saved["256 GiB", "in phase"], abs=0.02)
    assert saved["256 GiB", "shifted"] > 0.15
    assert mean["256 GiB", "shifted"] < 1.05 < 1.2 < mean["256 GiB", "in phase"]
    assert not points["128 GiB", "in phase"].fits
    assert "the pool is exhausted and nobody frees" in points["128 GiB", "in phase"].reason


def test_one_step_of_a_life_is_the_program_itself():
    program = together(job("a", "host0")).program
    again = lived(program, 1, ())
    assert again.operations == program.operations
    assert again.num_tokens == program.num_tokens


def test_step_ends_follow_the_markers():
    result = together(job("a", "host0", steps=3), job("b", "host1"))
    ends = step_ends(result.jobs[0].replay, 3)
    assert list(ends) == sorted(ends)
    assert ends[-1] == result.jobs[0].replay.makespan_s


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"steps": 0}, r"jobs\[1\]\.steps: expected how many steps the job runs, got 0; a whole number from 1 up"),
        ({"steps": "two"}, r"jobs\[1\]\.steps: expected how many steps"),
        ({"after": "c"}, r"jobs\[1\]\.after: no job 'c' before this one; jobs before it are a"),
        ({"after": "b"}, r"jobs\[1\]\.after: no job 'b' before this one"),
    ],
)
def test_what_makes_no_sense_is_refused(more, message):
    with pytest.raises(InputError, match=message):
        together(job("a", "host0"), job("b", "host1", **more))
