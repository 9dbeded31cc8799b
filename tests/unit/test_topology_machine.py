"""Built-in machines load, and their routes cross what the wires say."""

import pytest

from sim.config.machine import load_machine
from sim.errors import InputError
from sim.laws.memory import programmable


@pytest.fixture(scope="module")
def reference():
    return load_machine("epyc-9554p-2x4090")


def test_reference_box_has_its_tiers_and_gpus(reference):
    assert reference.gpus() == ("gpu0", "gpu1")
    assert {name: tier.capacity_bytes for name, tier in reference.tiers.items()} == {
        "cpu0.dram": 512 * 2**30,
        "gpu0.gddr": programmable(24 * 2**30),
        "gpu1.gddr": programmable(24 * 2**30),
        "nvme0": 8e12,
    }


def test_copy_to_the_gpu_reads_dram_crosses_the_link_and_writes_gddr(reference):
    route = reference.route("cpu0.dram", "gpu1.gddr", initiator="gpu1")
    assert [name for name, _cost in route.uses] == ["cpu0.dram", "cpu0->gpu1.pcie", "cpu0<->gpu1.pcie", "gpu1.gddr"]


def test_gpus_without_peer_access_copy_through_host_memory(reference):
    route = reference.peer("gpu0", "gpu1")
    assert route.is_staged
    assert dict(route.uses)["cpu0.dram"] > 2.0  # written and read


def test_gpus_behind_nvswitch_copy_directly():
    route = load_machine("dgx-a100").peer("gpu0", "gpu7")
    assert route.hops == ("gpu0", "nvswitch", "gpu7")
    assert not route.is_staged


def test_roles_resolve_to_the_nearest_tier(reference):
    assert reference.resolve("gpu", "gpu1") == "gpu1.gddr"
    assert load_machine("dgx-a100").resolve("dram", "gpu6") == "cpu1.dram"
    with pytest.raises(InputError, match="has no cxl tier"):
        reference.resolve("cxl", "gpu0")
    with pytest.raises(InputError, match=r"unknown tier 'drm' .* did you mean 'dram'"):
        reference.resolve("drm", "gpu0")


def test_a_kind_of_memory_is_a_role():
    machine = load_machine("gh200")
    assert machine.resolve("lpddr", "gpu0") == machine.resolve("dram", "gpu0") == "cpu0.lpddr"
    with pytest.raises(InputError, match="unknown tier 'lpddr'"):
        load_machine("desktop-rtx-4090").resolve("lpddr", "gpu0")
