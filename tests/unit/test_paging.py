"""Memory that runs out: the law of the cliff, and the operations that faults become."""

import msgspec
import pytest

from sim.config import load_machine, scenario_of
from sim.engine import run_checked
from sim.errors import InternalError
from sim.experiment import run
from sim.laws.paging import cache_hit_share, gpu_fault_rate, miss_share, swap_rate
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
        program(28e9), machine, tier="cpu0.dram", storage="nvme0", updated_bytes=12e9, room_bytes=room, replacement="lru"
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


def test_pages_of_ordinary_buffers_are_faulted_by_the_copies_that_touch_them(machine):
    copies = tuple(
        Operation(id=role, kind=Kind.TRANSFER, stream=f"rank.{role}", sequence=0, work=4e9, uses=(("cpu0.dram", 1.0),),
                  category="transfer")
        for role in ("h2d", "d2h")
    )  # fmt: skip
    base = program(28e9)
    streams = (*base.streams, *(Stream(name=f"rank.{role}") for role in ("h2d", "d2h")))
    base = msgspec.structs.replace(base, operations=(*base.operations, *copies), streams=streams)
    paged = with_swap(
        base, machine, tier="cpu0.dram", storage="nvme0", updated_bytes=12e9, copied_bytes=8e9, room_bytes=10e9,
        replacement="refault",
    )  # fmt: skip
    faults = {op.id: op for op in paged.operations if op.name == "page in"}
    assert {name: op.work for name, op in faults.items()} == pytest.approx({"a.fault": 6e9, "h2d.fault": 2e9, "d2h.fault": 2e9})
    assert len(faults["d2h.fault"].uses) > len(faults["h2d.fault"].uses)  # what a copy writes is written back


def with_cxl(capacity_gib, **placement):
    machine = load_machine("epyc-9554p-2x4090")
    data = {
        "topology": {
            "base": machine.name,
            "add": {"cxl0": {"part": "cxl-expander-asic-x8", "to": "cpu0"}},
            "set": {"cpu0.memory.capacity": f"{capacity_gib:.9f} GiB"},
        },
        "workload": {
            "training": {
                "model": "llama-2-7b", "sequence_length": 1024, "framework": "deepspeed-zero", "optimizer": {"offload": True},
                "checkpointing": {"active": True}, "parallelism": {"data": 2, "zero_stage": 2},
            }
        },
        "placement": placement,
    }  # fmt: skip
    return run(scenario_of(data).resolve(), with_penalty=False)


def test_what_does_not_fit_spills_to_the_next_memory_and_one_byte_less_stays():
    need = with_cxl(512).summary.tiers["cpu0.dram"].peak_bytes / GIB
    fits, spills = with_cxl(need * (1 + 1e-9), overflow="spill"), with_cxl(need - 1, overflow="spill")
    assert "cxl0" not in fits.summary.tiers
    assert spills.fits
    assert spills.summary.tiers["cxl0"].peak_bytes >= 0.9 * GIB
    assert any(note.endswith("lies on cxl0") for note in spills.assumptions)
    assert not with_cxl(need - 1).fits


def test_spill_takes_the_coldest_class_first():
    spills = with_cxl(100, overflow="spill")
    assert set(spills.summary.tiers["cxl0"].by_class) & {"gradients", "weights"}  # touched once, the states more often


def test_a_spill_that_finds_no_room_does_not_fit():
    assert not with_cxl(4, overflow="spill").fits


@pytest.mark.parametrize(
    ("size", "epochs", "share"), [(100.0, 4.0, 0.75), (100.0 + 1e-6, 4.0, 0.0), (100.0, 1.0, 0.0), (0.0, 4.0, 0.0)]
)
def test_the_page_cache_holds_all_of_a_data_set_or_nothing(size, epochs, share):
    assert cache_hit_share(size, 100.0, epochs) == share


def test_a_data_set_that_fits_the_free_memory_is_read_once():
    def reads(samples):
        data = {
            "topology": "desktop-rtx-4090",
            "workload": {
                "training": {
                    "model": "gpt2", "sequence_length": 512, "batch_size": 8,
                    "data": {"bytes_per_sample": "1 MB", "seconds_per_sample": "1 ms", "workers": 4},
                    "dataset": {"samples": samples, "epochs": 4},
                }
            },
        }  # fmt: skip
        result = run(scenario_of(data).resolve(), with_penalty=False)
        return result.summary.channels["nvme0"].bytes, result.assumptions

    small, notes = reads(10_000)
    large, none = reads(10_000_000)
    assert small == pytest.approx(large / 4)
    assert any("page cache holds the data set" in note for note in notes)
    assert not any("page cache" in note for note in none)


def test_a_mapped_model_that_outgrows_the_page_cache_is_read_again_for_every_token():
    def answer(capacity_gib, **placement):
        data = {
            "topology": {"base": "desktop-rtx-4090", "set": {"cpu0.memory.capacity": f"{capacity_gib} GiB"}},
            "workload": {
                "inference": {"model": "llama-3-70b", "weights": "q4_k_m", "framework": "llama.cpp", "gpu_layers": 30}
            },
            "placement": placement,
        }
        return run(scenario_of(data).resolve(), with_penalty=False)

    fits, short, refused = answer(64, overflow="swap"), answer(28, overflow="swap"), answer(28)
    assert fits.summary.breakdown_s["paging"] == 0.0
    assert not refused.fits
    assert short.fits
    swept = short.inference.time_per_output_token_s - fits.inference.time_per_output_token_s
    on_host = 50 / 80 * 42.5e9
    assert swept == pytest.approx(on_host / (0.8 * 7.45e9), rel=0.35)  # the drive reads all of it again for each token
