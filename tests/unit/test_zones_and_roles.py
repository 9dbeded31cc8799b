"""Movable memory holds nothing page-locked; a role means all cards that are equally near."""

import pytest

from sim.config import scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.placement.capacity import capacity_plan
from sim.placement.zones import DESCRIPTOR_SHARE

GIB = 2.0**30


def box(*, dram="128 GiB", zone="normal", placement=None, zero=3, offload=None, cards=1, **patch):
    cxl = {"part": "cxl-expander-asic-x8", "to": "cpu0", "capacity": "256 GiB", "zone": zone}
    training = {
        "model": "llama-2-7b", "sequence_length": 2048, "batch_size": 1, "framework": "deepspeed-zero",
        "checkpointing": {"active": True}, "parallelism": {"data": 2, "zero_stage": zero}, "offload": offload or {},
    }  # fmt: skip
    return scenario_of(
        {
            "topology": {
                "base": "epyc-9554p-2x4090",
                "add": {f"cxl{i}": cxl for i in range(cards)},
                "set": {"cpu0.memory.capacity": dram, **patch},
            },
            "workload": {"training": training},
            "placement": placement
            or {"weights": "cxl0", "gradients": "cxl0", "optimizer_states": {"dram": "50%", "cxl0": "50%"}},
        }
    ).resolve()


def test_dram_runs_out_beside_an_empty_movable_expander():
    """ndctl issue 110: the killer comes although most of the slow node is free."""
    normal, movable = (run(box(zone=zone), with_penalty=False) for zone in ("normal", "movable"))
    assert normal.fits
    assert not movable.fits
    assert movable.summary.tiers["cxl0"].peak_bytes < 0.3 * movable.summary.tiers["cxl0"].capacity_bytes
    assert "cpu0.dram needs" in movable.reason
    assert (
        "cxl0: online as movable memory (ZONE_MOVABLE): page-locked weights, gradients, activations lie in DRAM"
        in movable.reason
    )


def test_ordinary_memory_moves_to_a_movable_expander():
    """Without page-locking the same job fits: pages of optimizer, weights and gradients may be moved."""
    assert run(box(zone="movable", offload={"pin_memory": False}), with_penalty=False).fits


def test_the_page_descriptors_of_movable_memory_decide_at_the_boundary():
    need = run(box(dram="384 GiB", zone="movable"), with_penalty=False).summary.tiers["cpu0.dram"].peak_bytes
    plain = run(box(dram="384 GiB"), with_penalty=False)
    assert need - DESCRIPTOR_SHARE * 256 * GIB > plain.summary.tiers["cpu0.dram"].peak_bytes
    assert DESCRIPTOR_SHARE * 256 * GIB == 4 * GIB
    fits = {extra: run(box(dram=f"{need + extra:.0f} B", zone="movable"), with_penalty=False).fits for extra in (1.0, -1.0)}
    assert fits == {1.0: True, -1.0: False}


def test_a_policy_and_spilling_leave_page_locked_memory_out_of_a_movable_expander():
    classes = ["weights", "gradients", "master_weights", "optimizer_states"]
    for placement in (
        {"policy": "latency_critical_first", "options": {"classes": classes}},
        {"weights": "dram", "optimizer_states": "dram", "overflow": "spill"},
    ):
        result = run(box(dram="160 GiB", zone="movable", placement=placement), with_penalty=False)
        held = result.summary.tiers["cxl0"].by_class
        assert held.get("weights", 0.0) == held.get("gradients", 0.0) == 0.0


def test_only_memory_that_comes_later_has_a_zone():
    with pytest.raises(InputError, match=r"cpu0\.zone: epyc-9554p is not memory that Linux puts online later"):
        box(**{"cpu0.zone": "movable"})
    with pytest.raises(InputError, match=r"cxl0\.snoop_filter: cxl-expander-asic-x8 keeps no hosts coherent"):
        box(**{"cxl0.snoop_filter": "1 GiB"})


# -------------------------------------------------------------------------------------------------------------- roles


def step_s(placement, **patch):
    return run(box(placement={"optimizer_states": placement}, dram="384 GiB", zero=2, **patch), with_penalty=False)


def test_cxl_means_all_cards_behind_the_socket():
    role = step_s("cxl", cards=2)
    named = step_s({"cxl0": "50%", "cxl1": "50%"}, cards=2)
    one = step_s("cxl0", cards=2)
    assert role.summary.step_time_s == pytest.approx(named.summary.step_time_s)
    assert role.summary.step_time_s < 0.8 * one.summary.step_time_s
    assert any(note.startswith("cxl means cxl0, cxl1, all that are equally near") for note in role.assumptions)
    assert not any(note.startswith("cxl means") for note in step_s("cxl", cards=1).assumptions)


def test_unequal_cards_take_pages_by_their_bandwidth():
    patch = {"cxl1.part": "cxl-expander-fpga", "cxl1.capacity": None}
    machine = box(cards=2, **patch).machine
    shares = machine.members("cxl", "gpu0")
    rates = {name: machine.channels[name].bandwidth_per_s for name in shares}
    assert shares["cxl0"] / shares["cxl1"] == pytest.approx(rates["cxl0"] / rates["cxl1"])
    assert sum(shares.values()) == pytest.approx(1.0)


def test_a_card_of_the_other_socket_is_not_in_the_set():
    from sim.config import load_machine

    machine = load_machine("xeon-2s-cxl")
    gpu = machine.gpus()[0] if machine.gpus() else "cpu0"
    near = machine.members("cxl", gpu)
    host = machine.host_of(gpu)
    assert set(near) == {name for name, device in machine.devices.items() if device.kind == "cxl" and host in device.to}
    assert 0 < len(near) < sum(device.kind == "cxl" for device in machine.devices.values())


def test_two_drives_are_not_one_unless_they_are_named():
    scenario = box(placement={"optimizer_states": "nvme"}, dram="384 GiB")
    drives = [name for name, tier in scenario.machine.tiers.items() if tier.kind == "nvme"]
    part = scenario.machine.devices[drives[0]].part_name
    training = {"model": "llama-2-7b", "framework": "deepspeed-zero", "parallelism": {"data": 2, "zero_stage": 2}}
    topology = {"base": "epyc-9554p-2x4090", "add": {"nvme9": {"part": part, "to": "cpu0"}}}
    placement = {"optimizer_states": "nvme"}
    asked = {"topology": topology, "workload": {"training": training}, "placement": placement}
    both = scenario_of(asked).resolve()
    assert set(both.machine.members("nvme", "gpu0")) == {drives[0]}
    needs = capacity_plan(both.job.workload, both.job.placement, both.machine)
    assert "nvme9" not in needs
    result = run(both, with_penalty=False)
    assert any(f"nvme means {drives[0]}, one file system: nvme9 stays idle" in note for note in result.assumptions)
