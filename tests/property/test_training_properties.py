"""What any training step must do: more work never takes less time, and no GPU computes faster than its peak."""

import copy
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sim.config import scenario_of
from sim.engine import replay
from sim.errors import InputError
from sim.experiment import prepare

#: machine -> (GPUs of a node, dense 16-bit FLOP/s of one)
MACHINES = {
    "dgx-h100": (8, 989.4e12), "dgx-a100": (8, 312e12), "mi300x-8x": (8, 1307.4e12), "gb200-nvl4": (4, 2500e12),
    "gh200-quad": (4, 989.4e12),
}  # fmt: skip
MODELS = st.sampled_from(["llama-3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "llama-2-13b", "gpt2-xl"])
FRAMEWORKS = st.sampled_from(["fsdp", "deepspeed-zero", "megatron-core", "torchtitan", "hf-trainer", "nemo"])
#: rounding of sums of operations, and launches that hide behind others
SLACK = 1.001


@st.composite
def jobs(draw: Any) -> tuple[str, int, dict[str, Any]]:
    """(machine, nodes, training block) that a plan can run."""
    machine, nodes = draw(st.sampled_from(sorted(MACHINES))), draw(st.sampled_from([1, 2, 8]))
    tensor, pipeline = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    split = {"tensor": tensor, "pipeline": pipeline, "data": MACHINES[machine][0] * nodes // tensor // pipeline}
    return (
        machine,
        nodes,
        {
            "model": draw(MODELS),
            "framework": draw(FRAMEWORKS),
            "sequence_length": draw(st.sampled_from([512, 2048, 8192])),
            "batch_size": draw(st.sampled_from([1, 2, 4])),
            "gradient_accumulation": draw(st.sampled_from([1, 2])),
            "parallelism": split | {"zero_stage": draw(st.integers(0, 1 if pipeline > 1 else 3))},
            "optimizer": {"offload": draw(st.booleans())},
        },
    )


def seconds(job: tuple[str, int, dict[str, Any]], **changes: Any) -> tuple[float, float]:
    """Seconds of the step, and its model FLOPs per GPU and second; an impossible plan is no example."""
    machine, nodes, training = copy.deepcopy(job)
    document = {"topology": {"base": machine, "set": {"nodes": nodes}}, "workload": {"training": training | changes}}
    try:
        step, program = prepare(scenario_of({"name": "job"} | document, file="job.yaml").resolve())
    except InputError:
        assume(False)
        raise
    took = replay(program, capacity="observe").makespan_s
    return took, step.model_flops / took / (MACHINES[machine][0] * nodes)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs())
def test_more_work_takes_longer_and_no_more_than_its_share(job: tuple[str, int, dict[str, Any]]) -> None:
    training = job[2]
    base, flops_per_s = seconds(job)
    assert 0 < flops_per_s < MACHINES[job[0]][1]
    for key, most in (("batch_size", 2.3), ("gradient_accumulation", 2.1), ("sequence_length", 4.2)):
        assert base < seconds(job, **{key: 2 * training[key]})[0] < most * base


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs())
def test_recomputing_storing_scores_and_offloading_cost_time_and_fusing_saves_it(job: tuple[str, int, dict[str, Any]]) -> None:
    base = seconds(job)[0]
    # states at home: gradients on their way to the host may hide behind what is recomputed (0.6 % seen)
    kept, recomputed = (seconds(job, optimizer={"offload": False}, checkpointing={"active": on})[0] for on in (False, True))
    assert kept <= recomputed * SLACK
    assert base <= seconds(job, attention="eager")[0] * SLACK
    assert seconds(job, compile=True)[0] <= base * SLACK
    at_home, away = (seconds(job, optimizer={"offload": is_away})[0] for is_away in (False, True))
    assert at_home <= away * 1.02  # a late all-gather may hide behind what the link takes
