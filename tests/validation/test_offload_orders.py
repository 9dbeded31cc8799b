"""Every kind of offload does something, and the order is the one that its authors describe."""

from itertools import pairwise

import pytest

from sim.config import scenario_of
from sim.experiment import Result, run

DIMMS = {"part": "ddr5-5600-2r", "channels": 8, "capacity": "512 GiB"}
BOX = {
    "title": "two GPUs on two sockets, an expander on each, two drives",
    "source": "assumed",
    "devices": {
        "cpu[0-1]": {"part": "xeon-8592", "memory": DIMMS, "host": "host0"},
        "gpu[0-1]": {"part": "h100-pcie", "to": "cpu[0-1]"},
        "cxl[0-1]": {"part": "cxl-expander-asic-x8", "to": "cpu[0-1]", "capacity": "256 GiB"},
        "nvme0": {"part": "nvme-pcie5-enterprise", "count": 2, "to": "cpu0"},
    },
    "links": {"sockets": {"part": "upi-20", "lanes": 4, "between": ["cpu0", "cpu1"]}},
}
OFFLOADED = {"optimizer_states": "dram"}


def _run(placement=None, *, data=2, zero_stage=3, **fields) -> Result:
    training = {
        "model": "llama-2-7b", "sequence_length": 2048, "batch_size": 2, "framework": "deepspeed-zero",
        "checkpointing": {"active": True}, "parallelism": {"data": data, "zero_stage": zero_stage},
    }  # fmt: skip
    block = {"name": "kinds", "topology": BOX, "workload": {"training": training | fields}}
    return run(scenario_of(block | ({"placement": placement} if placement else {})).resolve(), with_penalty=False)


def _seconds(placement=None, **fields) -> float:
    return _run(placement, **fields).summary.step_time_s


def _rises(times, *, strictly=True):
    return all(a < b if strictly else a <= b * 1.001 for a, b in pairwise(times))


@pytest.mark.parametrize("tensor", ["optimizer_states", "activations"])
def test_slower_tiers_make_a_longer_step(tensor):
    rest = {} if tensor == "optimizer_states" else OFFLOADED
    fields = {} if tensor == "optimizer_states" else {"checkpointing": {"active": False}}
    assert _rises([_seconds(rest | {tensor: tier}, **fields) for tier in ("gpu", "dram", "cxl", "nvme")])


def test_weights_on_slower_tiers_make_a_longer_step():
    """GPU memory is left out: offloaded states return their weights there, which costs more than fetching them."""
    assert _rises([_seconds(OFFLOADED | {"weights": tier}) for tier in ("dram", "cxl", "nvme")])


def test_gradients_that_stay_on_the_gpu_leave_for_the_update():
    stay = _run(OFFLOADED | {"gradients": "gpu"})
    moved = [op for op in stay.step.operations if op.name == "store gradients"]
    assert {op.phase for op in moved} == {"update"}
    assert sum(op.size_bytes for op in moved) == pytest.approx(2 * 6.738e9 / 2, rel=0.01)


def test_a_share_of_the_states_on_the_gpu_is_updated_there():
    """ZeRO-Offload++'s twin flow: the CPU updates less, and the step gets shorter with every share that fits."""
    times = [_seconds({"optimizer_states": {"gpu": f"{x}%", "dram": f"{100 - x}%"}}, zero_stage=2) for x in (75, 50, 25)]
    assert _rises([_seconds({"optimizer_states": "gpu"}, zero_stage=2), *times, _seconds(OFFLOADED, zero_stage=2)])


def test_updating_some_sub_groups_on_the_gpu_pays_up_to_what_the_link_carries():
    """Deep Optimizer States: a share of the sub-groups through the GPU shortens the update of unbound ranks."""
    groups = {"sub_group_elements": 100_000_000}
    none, half = (_seconds(OFFLOADED, optimizer={"gpu_fraction": x}, offload=groups) for x in (0.0, 0.5))
    assert half < none


def test_overlap_and_page_locking_help():
    blocking = _seconds(OFFLOADED, offload={"overlap_gradients": False})
    beside = _seconds(OFFLOADED, offload={"overlap_gradients": True})
    pageable = _seconds(OFFLOADED, offload={"overlap_gradients": True, "pin_memory": False})
    both = _seconds(OFFLOADED, offload={"overlap_gradients": True, "overlap_update": True})
    assert _rises([both, beside, pageable])
    assert beside < blocking


def test_a_delayed_update_hides_behind_the_next_step():
    assert _seconds(OFFLOADED, zero_stage=2, optimizer={"delayed_update": True}) < _seconds(OFFLOADED, zero_stage=2)


@pytest.mark.parametrize("is_bound", [True, False])
def test_fewer_threads_update_more_slowly(is_bound):
    times = [_seconds(OFFLOADED, offload={"cores_per_rank": cores, "cores_bound": is_bound}) for cores in (32, 8, 2, 1)]
    assert _rises(times)
    assert times[-1] > 1.5 * times[-2]


def test_more_swap_buffers_never_hurt():
    times = [_seconds({"optimizer_states": "nvme"}, offload={"state_buffer_count": count}) for count in (64, 12, 8, 4, 1)]
    assert _rises(times, strictly=False)
    assert times[0] < times[-1]


def test_weights_that_stay_in_host_memory_are_not_read_from_the_drive():
    places = {"optimizer_states": "nvme", "weights": "nvme"}
    assert _rises([_seconds(places, offload={"max_in_cpu_elements": kept}) for kept in (4_000_000_000, 1_000_000_000, 0)])


def test_more_layers_whose_activations_leave_make_a_longer_step():
    fields = {"checkpointing": {"active": False}}
    times = [_seconds(OFFLOADED, offload={"activation_layers": layers}, **fields) for layers in ("0-7", "0-15", "all")]
    assert _rises([_seconds(OFFLOADED, **fields), *times])


def test_an_optimizer_with_fewer_states_moves_less():
    assert _rises([_seconds(OFFLOADED, optimizer={"type": kind}) for kind in ("sgd", "lion", "adamw")])


def test_binding_ranks_to_cores_never_slows_their_update():
    """DeepSpeed pull request 7474: two ranks on two of the GPUs of one socket, 3.08 s unbound and 2.38 s bound."""

    def seconds(is_bound):
        training = {
            "model": "qwen2.5-3b", "sequence_length": 2048, "framework": "deepspeed-hf", "optimizer": {"offload": True},
            "parallelism": {"data": 2, "zero_stage": 2}, "offload": {"cores_bound": is_bound},
        }  # fmt: skip
        block = {"name": "bound", "topology": "dgx-a100-40gb", "workload": {"training": training}}
        return run(scenario_of(block).resolve(), with_penalty=False).summary.step_time_s

    assert seconds(True) < 0.95 * seconds(False)
