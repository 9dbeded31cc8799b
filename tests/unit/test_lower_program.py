"""Lowering onto built-in machines: folding changes nothing, amounts arrive where they should, refusals."""

import dataclasses

import msgspec
import pytest

from sim.config import load_machine
from sim.engine import replay, run_checked
from sim.errors import InputError
from sim.placement.plan import Entry, Placement
from sim.program import lower
from sim.program.transfers import Routes
from sim.records import TensorClass
from sim.workload import decode
from sim.workload.inference import Inference
from sim.workload.shape import ModelShape
from sim.workload.step import generate
from sim.workload.training import Checkpointing, Parallelism, Training

SMALL = ModelShape(name="small", layers=4, hidden=512, heads=8, ffn=2048, vocabulary=4000, mlp="gelu")
HOST = (TensorClass.OPTIMIZER_STATES, TensorClass.MASTER_WEIGHTS, TensorClass.GRADIENTS)
OFFLOAD = Placement(entries=tuple(Entry(tensor_class=item, shares={"dram": 1.0}) for item in HOST))


def _step(offload=False, **fields):
    base = {"model": SMALL, "sequence_length": 512, "batch_size": 2, "framework": "deepspeed-zero"}
    return generate(Training(**base | fields), dict.fromkeys(HOST, "host") if offload else {})


@pytest.mark.parametrize(
    ("machine", "parallelism", "offload"),
    [
        ("epyc-9554p-2x4090", Parallelism(data=2, zero_stage=2), True),
        ("dgx-h100", Parallelism(data=8, zero_stage=3), True),
        ("dgx-h100", Parallelism(data=6, zero_stage=3), True),  # four ranks on one socket, two on the other
        ("dgx-a100", Parallelism(data=2, tensor=4, zero_stage=1), False),
        ("dgx-a100", Parallelism(data=2, tensor=2, pipeline=2), False),
    ],
)
def test_folded_and_unfolded_replays_agree(machine, parallelism, offload):
    step, placement = _step(offload, parallelism=parallelism, gradient_accumulation=2), OFFLOAD if offload else Placement()
    folded = lower(step, load_machine(machine), placement)
    unfolded = lower(step, load_machine(machine), placement, is_folded=False)
    assert len(folded.operations) < len(unfolded.operations)
    one, all_ranks = run_checked(folded), run_checked(unfolded)
    assert one.makespan_s == pytest.approx(all_ranks.makespan_s, rel=1e-9)
    moved = {c.name: c.amount for c in all_ranks.channels}
    for total, channel in zip(one.channels, folded.channels, strict=True):
        if total.name in moved and channel.multiplicity == 1:
            assert total.amount == pytest.approx(moved[total.name], rel=1e-9)


@pytest.mark.parametrize(
    ("nodes", "parallelism"),
    [
        (4, Parallelism(data=4, tensor=4, pipeline=2, zero_stage=1)),  # own adapters for sends, all for the reduction
        (2, Parallelism(data=2, tensor=4, pipeline=2)),
        (4, Parallelism(data=16, pipeline=2, zero_stage=2)),
    ],
)
def test_folded_and_unfolded_replays_agree_over_nodes(nodes, parallelism):
    machine = dataclasses.replace(load_machine("dgx-h100"), num_nodes=nodes)
    step = _step(parallelism=parallelism, gradient_accumulation=4)
    folded, unfolded = lower(step, machine, Placement()), lower(step, machine, Placement(), is_folded=False)
    assert len(folded.operations) < len(unfolded.operations) / 4
    assert run_checked(folded).makespan_s == pytest.approx(run_checked(unfolded).makespan_s, rel=1e-9)


def test_two_sockets_with_unequal_ranks_are_two_groups():
    program = lower(_step(True, parallelism=Parallelism(data=6, zero_stage=3)), load_machine("dgx-h100"), OFFLOAD)
    streams = {stream.name: stream.multiplicity for stream in program.streams if stream.role == "compute"}
    assert streams == {"rank@0.compute": 4, "rank@4.compute": 2}


def test_symmetric_ranks_are_one_group_and_their_channels_are_counted():
    program = lower(_step(True, parallelism=Parallelism(data=8, zero_stage=3)), load_machine("dgx-h100"), OFFLOAD)
    assert {stream.multiplicity for stream in program.streams} == {8}
    counts = {channel.name: channel.multiplicity for channel in program.channels}
    assert counts["gpu0.hbm"] == 8
    assert counts["cpu0.dram"] == 2


def test_pipeline_stages_cross_their_own_links():
    step = _step(parallelism=Parallelism(pipeline=2, tensor=2), gradient_accumulation=4)
    program = lower(step, load_machine("dgx-h100"), Placement())
    replayed = replay(program)
    sends = [op for op in program.operations if op.stream.endswith("p2p")]
    assert {name for op in sends for name, _ in op.uses if "nvlink" in name} >= {
        "gpu0->nvswitch.nvlink",
        "nvswitch->gpu2.nvlink",
    }
    assert replayed.makespan_s > 0


def test_same_tier_is_no_transfer():
    step = _step(True, parallelism=Parallelism(data=1))
    program = lower(step, load_machine("desktop-rtx-4090"), Placement())
    copies = [op for op in program.operations if op.stream.endswith(("d2h", "h2d"))]
    assert copies
    assert all(op.work == 0 for op in copies)


def test_blocking_copies_cost_more_than_none():
    machine = load_machine("desktop-rtx-4090")
    fast = replay(lower(_step(), machine, Placement())).makespan_s
    slow = replay(lower(_step(True), machine, OFFLOAD)).makespan_s
    assert slow > fast


def test_recompute_costs_about_a_third_of_compute():
    machine = load_machine("dgx-h100")
    model = ModelShape(name="7b", layers=8, hidden=4096, heads=32, ffn=11008, vocabulary=1000)
    base = {"model": model, "sequence_length": 2048, "framework": "megatron"}
    times = [
        replay(lower(_step(**base, checkpointing=Checkpointing(active=on)), machine, Placement())).makespan_s
        for on in (False, True)
    ]
    assert 1.2 < times[1] / times[0] < 1.36


def test_more_ranks_than_gpus_is_refused():
    with pytest.raises(InputError, match="4 ranks, but the machine has 2 GPUs"):
        lower(_step(parallelism=Parallelism(data=4)), load_machine("epyc-9554p-2x4090"), Placement())


def test_missing_tier_is_refused():
    placement = Placement(entries=(Entry(tensor_class=TensorClass.OPTIMIZER_STATES, shares={"cxl": 1.0}),))
    with pytest.raises(InputError, match="no cxl tier"):
        lower(_step(True), load_machine("dgx-h100"), placement)


def test_waits_of_joined_groups_grow_with_the_ranks_not_with_their_square():
    counts = {}
    for num in (4, 8):
        step = _step(parallelism=Parallelism(data=num, zero_stage=3))
        program = lower(step, load_machine("dgx-h100"), Placement(), is_folded=False)
        counts[num] = sum(len(op.after) for op in program.operations)
        joins = [op for op in program.operations if op.name == "join"]
        assert len(joins) == sum(op.collective is not None for op in step.operations)
    assert counts[8] == pytest.approx(2 * counts[4], rel=0.01)


@pytest.mark.parametrize(("tier", "share"), [("dram", 0.83), ("nvme", 1.0)])
def test_what_a_framework_loses_on_a_link_is_not_lost_on_a_drive(tier, share):
    machine = load_machine("epyc-9554p-2x4090")
    placement = Placement(entries=(Entry(tensor_class=TensorClass.WEIGHTS, shares={tier: 1.0}),))

    def cap(framework):
        inference = Inference(model=SMALL, framework=framework, output_length=1)
        step = decode.generate(inference, {TensorClass.WEIGHTS: "host" if tier == "dram" else "storage"})
        program = lower(step, machine, placement)
        fetch = next(op for op in program.operations if op.name == "fetch weights")
        width = {channel.name: channel.bandwidth_per_s for channel in program.channels}
        return min(fetch.rate_cap, *(width[name] / cost for name, cost in fetch.uses))

    assert cap("deepspeed-zero-inference") == pytest.approx(share * cap("auto"))


def test_operations_renewed_for_another_machine_are_those_written_for_it():
    step = _step(True, parallelism=Parallelism(data=2, zero_stage=3))
    machines = [load_machine("epyc-9554p-2x4090"), _slower(load_machine("epyc-9554p-2x4090"))]
    renewed = [lower(step, machine, OFFLOAD) for machine in machines]
    fresh = [lower(msgspec.structs.replace(step), machine, OFFLOAD) for machine in machines]
    assert renewed == fresh
    assert renewed[0].operations != renewed[1].operations
    same = sum(a is b for a, b in zip(renewed[0].operations, renewed[1].operations, strict=True))
    assert 0 < same < len(renewed[0].operations)  # kernels stay the same objects, copies over the slower link do not


def _slower(machine):
    channels = {
        name: msgspec.structs.replace(channel, bandwidth_per_s=channel.bandwidth_per_s / 2) if ".pcie" in name else channel
        for name, channel in machine.channels.items()
    }
    return dataclasses.replace(machine, channels=channels)


def test_two_drives_share_the_second_stage_of_a_copy_through_host_memory():
    machine = load_machine("dgx-2")
    routes = Routes(machine, Placement())
    drives = {name: machine.route(name, machine.memory_tier("gpu0"), initiator="gpu0") for name in ("nvme0", "nvme1")}
    slot = drives["nvme0"].second_stage_bytes_per_s
    alone = drives["nvme0"].rate_cap_bytes_per_s
    both = routes.copy((("nvme0", 0.5), ("nvme1", 0.5)), ((machine.memory_tier("gpu0"), 1.0),), "gpu0", is_pinned=True)
    drive = 1 / (1 / alone - 1 / slot)
    assert both.rate_cap == pytest.approx(1 / (1 / (2 * drive) + 1 / slot))
    assert alone < both.rate_cap < slot


def test_pages_of_two_tiers_pass_one_bounce_buffer():
    machine = load_machine("rtx-5090-cxl")
    gpu = machine.memory_tier("gpu0")
    alone = machine.route("cpu0.dram", gpu, initiator="gpu0", is_pinned=False).rate_cap_bytes_per_s
    both = Routes(machine, Placement()).copy((("cpu0.dram", 0.5), ("cxl0", 0.5)), ((gpu, 1.0),), "gpu0", is_pinned=False)
    assert both.rate_cap == pytest.approx(alone)
