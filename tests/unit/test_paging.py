"""Memory that runs out: the law of the cliff, and the operations that faults become."""

import pytest

from sim.config import load_machine
from sim.engine import run_checked
from sim.errors import InternalError
from sim.experiment import run
from sim.laws.paging import gpu_fault_rate, miss_share, swap_rate
from sim.placement.plan import Entry, Placement
from sim.program.paging import with_swap
from sim.records import Channel, Kind, Operation, Program, Stream, TensorClass
from sim.scenario import Job, Scenario
from sim.topology.machine import Machine
from sim.workload.shapes import builtin
from sim.workload.training import Checkpointing, Optimizer, Parallelism, Training

GIB = 2.0**30


@pytest.mark.parametrize(("size", "share"), [(99.0, 0.0), (100.0, 0.0), (100.001, 1.0), (200.0, 1.0)])
def test_a_cyclic_sweep_under_lru_misses_nothing_or_everything(size, share):
    assert miss_share(size, 100.0) == share


@pytest.mark.parametrize(("size", "share"), [(100.0, 0.0), (125.0, 0.2), (200.0, 0.5)])
def test_refault_detection_keeps_what_has_room(size, share):
    assert miss_share(size, 100.0, "refault") == pytest.approx(share)


def test_unknown_replacement_is_a_defect():
    with pytest.raises(InternalError, match="unknown page replacement 'clock'"):
        miss_share(1.0, 1.0, "clock")


def test_faults_scale_with_threads_and_gpu_faults_are_slower_than_the_link():
    assert swap_rate(80e-6, 8) == pytest.approx(8 * 32768 / 90e-6)
    assert gpu_fault_rate(25e9) < 25e9 / 2  # the eviction takes the link too
    assert gpu_fault_rate(450e9) < 12e9  # a faster link hardly helps: the faults bind


def program(work):
    return Program(
        name="p",
        channels=(Channel(name="cpu0.dram", bandwidth_per_s=200e9),),
        tiers=(),
        streams=(Stream(name="rank.cpu"),),
        operations=(
            Operation(id="a", kind=Kind.HOST_UPDATE, stream="rank.cpu", sequence=0, work=work, uses=(("cpu0.dram", 1.0),),
                      write_share=0.43, category="cpu_optimizer"),
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine("epyc-9554p-2x4090")


def swapped(machine, room):
    return with_swap(
        program(28e9), machine, tier="cpu0.dram", storage="nvme0", pageable_bytes=12e9, room_bytes=room, replacement="lru"
    )


def test_what_fits_is_left_alone(machine):
    assert swapped(machine, 12e9) == program(28e9)


def test_a_page_comes_in_before_the_update_that_needs_it(machine):
    paged = swapped(machine, 11.9e9)
    fault, update = sorted(run_checked(paged).operations, key=lambda record: record.start_s)
    assert fault.id == "a.fault"
    assert update.start_s == pytest.approx(fault.end_s)
    assert next(op.work for op in paged.operations if op.id == "a.fault") == pytest.approx(12e9)


def training(capacity_gib, **placement):
    machine = load_machine("epyc-9554p-2x4090")
    tier = machine.tiers["cpu0.dram"]
    from dataclasses import replace

    from msgspec.structs import replace as with_fields

    machine = replace(machine, tiers=dict(machine.tiers) | {"cpu0.dram": with_fields(tier, capacity_bytes=capacity_gib * GIB)})
    workload = Training(
        model=builtin("llama-2-7b"), sequence_length=1024, framework="deepspeed-zero", optimizer=Optimizer(offload=True),
        checkpointing=Checkpointing(active=True), parallelism=Parallelism(data=2, zero_stage=2),
    )  # fmt: skip
    entries = tuple(
        Entry(tensor_class=name, shares={"dram": 1.0})
        for name in (TensorClass.OPTIMIZER_STATES, TensorClass.MASTER_WEIGHTS, TensorClass.GRADIENTS)
    )
    job = Job(workload=workload, placement=Placement(entries=entries, **placement))
    return run(Scenario(name="s", machine=machine, jobs=(job,)), with_penalty=False)


def test_the_cliff_stands_where_the_host_is_one_byte_too_small():
    need = training(1024).summary.tiers["cpu0.dram"].peak_bytes / GIB
    fits, swaps = training(need * (1 + 1e-9), overflow="swap"), training(need * (1 - 1e-9), overflow="swap")
    assert fits.fits
    assert fits.summary.breakdown_s["paging"] == 0.0
    assert swaps.fits
    assert swaps.summary.step_time_s > 2 * fits.summary.step_time_s
    assert swaps.summary.breakdown_s["paging"] > fits.summary.step_time_s
    assert not training(need * (1 - 1e-9)).fits  # without swap it is a misfit


def test_pinned_memory_cannot_swap():
    result = training(24, overflow="swap")
    assert not result.fits
    assert "cpu0.dram needs" in result.reason
