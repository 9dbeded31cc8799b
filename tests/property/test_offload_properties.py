"""Whatever is offloaded in whatever way: a step with its seconds accounted for, or one refusal, never an internal error."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.config import scenario_of
from sim.errors import InputError
from sim.experiment import run

BOX = {
    "title": "two GPUs on two sockets, an expander on each, a drive",
    "source": "assumed",
    "devices": {
        "cpu[0-1]": {
            "part": "xeon-8592",
            "memory": {"part": "ddr5-5600-2r", "channels": 8, "capacity": "512 GiB"},
            "host": "h0",
        },
        "gpu[0-1]": {"part": "h100-pcie", "to": "cpu[0-1]"},
        "cxl[0-1]": {"part": "cxl-expander-asic-x8", "to": "cpu[0-1]", "capacity": "256 GiB"},
        "nvme0": {"part": "nvme-pcie5-enterprise", "to": "cpu0"},
    },
    "links": {"sockets": {"part": "upi-20", "lanes": 4, "between": ["cpu0", "cpu1"]}},
}
TIERS = st.sampled_from(
    ["gpu", "dram", "cxl", "nvme", {"dram": "60%", "cxl": "40%"}, {"gpu": "30%", "dram": "70%"}, {"gpu": "50%", "nvme": "50%"}]
)
PLACEMENTS = st.dictionaries(st.sampled_from(["optimizer_states", "gradients", "weights", "activations"]), TIERS)
OPTIMIZERS = st.sampled_from(
    [
        {}, {"delayed_update": True}, {"gpu_fraction": 0.3}, {"swap_through_gpu": True}, {"type": "lion"}, {"type": "sgd"},
        {"type": "paged_adamw_8bit"}, {"implementation": "fused"},
    ]
)  # fmt: skip
SWITCHES = st.fixed_dictionaries(
    {},
    optional={
        "pin_memory": st.booleans(),
        "overlap_gradients": st.booleans(),
        "overlap_update": st.booleans(),
        "sub_group_elements": st.sampled_from([10**6, 10**8]),
        "state_buffer_count": st.sampled_from([1, 4, 50]),
        "buffer_elements": st.sampled_from([10**5, 10**7]),
        "max_in_cpu_elements": st.sampled_from([0, 10**8]),
        "cores_per_rank": st.sampled_from([1, 33]),
        "cores_bound": st.booleans(),
        "activation_layers": st.sampled_from(["all", "0-3"]),
    },
)
FRAMEWORKS = st.sampled_from(
    ["deepspeed-zero", "deepspeed-megatron", "fsdp", "torchtune", "hf-trainer", "torchao", "auto", "megatron-core", "pytorch"]
)
PARALLEL = st.fixed_dictionaries({"data": st.sampled_from([1, 2]), "zero_stage": st.integers(0, 3)})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PLACEMENTS, OPTIMIZERS, SWITCHES, FRAMEWORKS, PARALLEL, st.booleans(), st.sampled_from([1, 2]))
def test_any_offload_runs_or_is_refused(
    placement: dict[str, Any], optimizer: dict[str, Any], offload: dict[str, Any], framework: str, parallel: dict[str, int],
    is_checkpointed: bool, accumulation: int,
) -> None:  # fmt: skip
    training = {
        "model": "qwen2.5-0.5b", "sequence_length": 512, "framework": framework, "gradient_accumulation": accumulation,
        "parallelism": parallel, "checkpointing": {"active": is_checkpointed}, "optimizer": optimizer, "offload": offload,
    }  # fmt: skip
    block = {"name": "any", "topology": BOX, "workload": {"training": training}, "placement": placement}
    try:
        result = run(scenario_of(block).resolve(), with_penalty=False)
    except InputError:
        return
    assert sum(result.summary.breakdown_s.values()) == pytest.approx(result.summary.step_time_s, rel=1e-9)
    assert all(op.work >= 0.0 for op in result.program.operations)
