"""An answer beside a training job: both begin anew until they end together, so each meets all phases of the other."""

import pytest

from sim.config import scenario_of
from sim.experiment import repeated, run
from sim.experiment.repeated import steps_of

#: whose optimizer works on the first socket's memory, in the last third of a step much longer than an answer
TRAIN = {
    "name": "train", "gpus": "gpu0", "placement": {"optimizer_states": "dram"},
    "workload": {
        "training": {
            "model": "llama-3.2-1b", "sequence_length": 256, "batch_size": 1, "framework": "deepspeed-zero",
            "checkpointing": {"active": True},
        }
    },
}  # fmt: skip


def serve(name, gpu, **more):
    inference = {"model": "gpt2", "prompt_length": 32, "output_length": 8, "batch_size": 1}
    life = {key: more.pop(key) for key in ("steps", "start") if key in more}
    return {"name": name, "gpus": gpu, "workload": {"inference": inference | more}, **life}


def together(*jobs):
    return run(scenario_of({"topology": "dgx-h100", "jobs": list(jobs)}).resolve(), with_penalty=False)


@pytest.fixture(scope="module")
def beside():
    return together(TRAIN, serve("host", "gpu1", device="cpu"), serve("apart", "gpu7"))


def test_an_answer_from_host_memory_meets_the_update_of_a_neighbour_that_is_long_in_its_step(beside):
    train, host, apart = beside.jobs
    first, worst = host.steps_s[0], max(host.steps_s)
    assert 1.02 < host.contention < 2.0  # two jobs on one memory: each gets half of it at least
    assert first < host.summary.step_time_s < worst  # the mean over what it met, not the forward pass it began in
    assert 1.02 < train.contention < 2.0
    assert apart.contention == pytest.approx(1.0, abs=1e-3)  # from its own GPU's memory
    assert worst > 1.1 * first


def test_jobs_that_repeat_end_together_and_say_so(beside):
    ends = [sum(job.steps_s) for job in beside.jobs]
    assert min(ends) > 0.9 * max(ends)
    assert len(beside.jobs[1].steps_s) > 4
    assert any("jobs begin anew until they end together" in note for note in beside.assumptions)


def test_the_mean_step_of_a_repeated_job_carries_what_one_carries(beside):
    alone = [together(TRAIN, serve("host", "gpu1", device="cpu", start="100 s")).jobs[num] for num in (0, 1)]
    for seen, single in zip(beside.jobs, alone, strict=False):
        assert seen.summary.channels["cpu0.dram"].bytes == pytest.approx(single.summary.channels["cpu0.dram"].bytes)
        assert single.contention == pytest.approx(1.0, abs=1e-3)


def test_the_times_of_an_answer_are_means_over_its_repetitions(beside):
    host = beside.jobs[1]
    assert host.inference.total_s == pytest.approx(host.summary.step_time_s)
    assert host.inference.tokens_per_s == pytest.approx(8 / host.summary.step_time_s)
    assert host.inference.time_to_first_token_s + 7 * host.inference.time_per_output_token_s == pytest.approx(
        host.inference.total_s
    )
    assert host.inference.decode_tokens_per_s == pytest.approx(1 / host.inference.time_per_output_token_s)


def test_answers_in_a_row_take_as_long_as_one_each():
    once = together(serve("a", "gpu0"), serve("b", "gpu7", start="100 s")).jobs[0]
    result = together(serve("a", "gpu0", steps=3), serve("b", "gpu7"))
    assert result.jobs[0].inference.time_to_first_token_s == pytest.approx(once.inference.time_to_first_token_s, rel=1e-6)
    assert result.jobs[0].inference.total_s == pytest.approx(once.inference.total_s, rel=1e-6)
    assert any("meets only the phases" in note and "`steps`" in note for note in result.assumptions)


def test_what_would_take_too_long_runs_once_and_says_so(monkeypatch):
    monkeypatch.setattr(repeated, "_MOST_OPERATIONS", 1000)
    result = together(TRAIN, serve("host", "gpu1", device="cpu"))
    assert [len(job.steps_s) for job in result.jobs] == [1, 1]
    assert any("more than 1,000 operations" in note for note in result.assumptions)


def test_all_jobs_together_are_told_for_one_step_of_the_longest():
    """Not the end of all repetitions: their number hops along a sweep."""
    pair = [TRAIN, serve("host", "gpu1", device="cpu", output_length=60)]
    result = together(*pair)
    rounds = min(len(job.steps_s) for job in result.jobs)
    assert rounds > 1
    assert result.summary.step_time_s == pytest.approx(max(job.summary.step_time_s for job in result.jobs), rel=0.06)
    assert result.replay.makespan_s == pytest.approx(rounds * result.summary.step_time_s)
    assert result.summary.tokens_per_s == pytest.approx(sum(job.summary.tokens_per_s for job in result.jobs), rel=0.06)


def test_steps_end_together():
    assert steps_of([1.0, 1.0]) == (1, 1)
    assert steps_of([10.0, 0.5]) == (1, 20)
    assert steps_of([1.5, 1.0]) == (2, 3)
    assert steps_of([2.0, 0.951, 1.0]) == (1, 2, 2)  # within a twentieth
    assert steps_of([1.0, 0.9]) == (6, 7)  # beyond it
