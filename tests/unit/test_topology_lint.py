"""Hardware lint: every rule on both sides of its boundary, where it points to, and how it is printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sim.cli import run
from sim.config import builtins, load_machine, load_scenario, parse_yaml
from sim.config.machine import machine_from
from sim.topology.machine import Machine

SOCKET = "{part: xeon-8480, memory: {part: ddr5-4800-2r, channels: %d, capacity: %s, dimms_per_channel: %d}, host: host0}"


def built(devices: str, links: str = "") -> Machine:
    return machine_from(parse_yaml(f"devices:\n{devices}{links}", "m.yaml"), name="m")


def server(*, channels: int = 8, capacity: str = "512 GiB", per_channel: int = 1, more: str = "") -> Machine:
    return built(f"  cpu0: {SOCKET % (channels, capacity, per_channel)}\n{more}")


def two_sockets(gpu_on: str, *, drive_on: str = "cpu0", is_far_empty: bool = False) -> Machine:
    far = "{part: xeon-8480, host: host0}" if is_far_empty else SOCKET % (8, "512 GiB", 1)
    devices = (
        f"  cpu0: {SOCKET % (8, '512 GiB', 1)}\n  cpu1: {far}\n  gpu0: {{part: h100-pcie, to: {gpu_on}}}\n"
        f"  gpu1: {{part: h100-pcie, to: cpu0}}\n  nvme0: {{part: nvme-pcie4-2tb, count: 4, to: {drive_on}}}\n"
    )
    return built(devices, "links: {sockets: {part: upi-16, lanes: 3, between: [cpu0, cpu1]}}\n")


@pytest.mark.parametrize(
    ("channels", "text"),
    [(8, ""), (7, "cpu0: 7 of 8 memory channels populated: 88 %"), (1, "1 of 8 memory channels populated: 12 %")],
)
def test_empty_memory_channels(channels: int, text: str) -> None:
    found = server(channels=channels).warnings
    assert bool(found) == bool(text)
    assert all(text in warning and "scenario a06-channels" in warning for warning in found)


def test_a_second_dimm_that_slows_the_channel() -> None:
    assert not server(per_channel=1).warnings
    (warning,) = server(per_channel=2).warnings
    assert warning.startswith("cpu0: two DIMMs per channel run at 4400 MT/s, one would run at 4800: 8 % less bandwidth")


def test_a_gpu_link_narrower_than_its_port() -> None:
    assert not server(more="  gpu0: {part: h100-pcie, to: cpu0}\n").warnings
    (warning,) = server(more="  gpu0: {part: h100-pcie, link: pcie5-x8, to: cpu0}\n").warnings
    assert warning == "gpu0: pcie5 x8 where h100-pcie has pcie5 x16: 50 % of its raw rate (scenario narrow-link)"
    (older,) = server(more="  gpu0: {part: h100-pcie, link: pcie4-x16, to: cpu0}\n").warnings
    assert "pcie4 x16 where h100-pcie has pcie5 x16: 50 %" in older


def test_lanes_oversubscribed_below_a_switch() -> None:
    switch = "  switch0: {part: pcie5-switch, to: cpu0}\n  gpu0: {part: h100-pcie, to: switch0}\n"
    assert not server(more=switch).warnings
    assert not server(more=switch + "  nic0: {part: connectx-7-ndr, to: switch0}\n").warnings  # its traffic stays below
    (warning,) = server(more=switch + "  nvme0: {part: nvme-pcie4-2tb, count: 4, to: switch0}\n").warnings
    assert warning.startswith("switch0: 94.5 GB/s below an uplink of 63 GB/s (1.5 : 1)")


def test_more_memory_than_a_card_is_sold_with() -> None:
    assert not server(more="  gpu0: {part: h100-pcie, capacity: 80 GiB, to: cpu0}\n").warnings
    (warning,) = server(more="  gpu0: {part: h100-pcie, capacity: 96 GiB, to: cpu0}\n").warnings
    what = "a modified card, or a what-if: room alone, no speed (scenario modified-card)"
    assert warning == f"gpu0: 96 GiB of memory, h100-pcie is sold with 80 GiB: {what}"


def test_sockets_that_nothing_joins() -> None:
    devices = f"  cpu0: {SOCKET % (8, '512 GiB', 1)}\n  cpu1: {SOCKET % (8, '512 GiB', 1)}\n"
    (warning,) = built(devices).warnings
    what = "what hangs on one reaches nothing of the other (scenario unjoined-socket)"
    assert warning == f"cpu0: no link to the other sockets of host0: {what}"
    assert not built(devices, "links: {sockets: {part: upi-16, lanes: 3, between: [cpu0, cpu1]}}\n").warnings


def test_equal_warnings_are_one() -> None:
    (uplinks,) = (text for text in load_machine("dgx-a100").warnings if "uplink" in text)
    assert uplinks.startswith("switch0 and 3 like it: 63 GB/s below an uplink of 31.5 GB/s (2 : 1)")


def test_a_gpu_on_the_far_socket() -> None:
    assert not two_sockets("cpu1").warnings
    (idle,) = two_sockets("cpu0").warnings
    assert idle.startswith("cpu1: memory without a GPU on its socket: what is kept there reaches the GPUs over the socket link")
    (far,) = two_sockets("cpu1", is_far_empty=True).warnings
    assert far.startswith("gpu0: hangs on cpu1, which has no memory: every copy with the host goes over the socket link")
    (_idle, drive) = two_sockets("cpu0", drive_on="cpu1").warnings
    assert drive.startswith("nvme0: hangs on cpu1, every GPU on another socket")


@pytest.mark.parametrize(("capacity", "is_broken"), [("122 GiB", False), ("115 GiB", True)])
def test_host_memory_of_one_and_a_half_gpu_memories(capacity: str, is_broken: bool) -> None:
    machine = server(capacity=capacity, more="  gpu0: {part: h100-pcie, to: cpu0}\n")
    assert 115 / 1.5 < machine.tiers["gpu0.hbm"].capacity_bytes / 2**30 < 122 / 1.5
    assert any("of host memory for" in text and "a06-host-memory" in text for text in machine.advice) == is_broken


@pytest.mark.parametrize(("num_gpus", "is_broken"), [(3, False), (4, True)])
def test_sixteen_cores_per_gpu(num_gpus: int, is_broken: bool) -> None:
    machine = server(capacity="1 TiB", more=f"  gpu[0-{num_gpus - 1}]: {{part: l40s, to: cpu0}}\n")
    assert any("cores for" in text and "a06-cores" in text for text in machine.advice) == is_broken  # 56 cores


@pytest.mark.parametrize(("count", "is_broken"), [(4, False), (3, True)])
def test_four_drives(count: int, is_broken: bool) -> None:
    more = f"  gpu0: {{part: l40s, to: cpu0}}\n  nvme0: {{part: nvme-pcie4-2tb, count: {count}, to: cpu0}}\n"
    assert any("NVMe drive" in text and "a06-drives" in text for text in server(more=more).advice) == is_broken


def test_rules_of_thumb_are_about_hosts_with_gpus_of_their_own_memory() -> None:
    assert not load_machine("xeon-8480-2s").advice
    assert not load_machine("mi300a-node").advice


def test_every_scenario_that_a_warning_names_exists_and_reads() -> None:
    texts = [text for name in builtins("topologies") for m in [load_machine(name)] for text in (*m.warnings, *m.advice)]
    texts += list(two_sockets("cpu1", is_far_empty=True).warnings)
    named = {name for text in texts for found in re.findall(r"\(scenarios? ([^)]+)\)", text) for name in found.split(", ")}
    assert named >= {"a06-channels", "a06-cores", "narrow-link", "shared-uplink", "far-socket", "two-dimms-per-channel"}
    for name in named:
        load_scenario(name).check()


def test_check_prints_warnings_and_rules_of_thumb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "epyc-9554p-2x4090"]) == 0
    assert "warning: cpu0: 8 of 12 memory channels populated" in capsys.readouterr().out
    assert run(["check", "desktop-rtx-4090", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["warnings"] == []
    assert any("NVMe" in text for text in found["advice"])
