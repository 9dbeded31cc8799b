# ruff: noqa: E501 - exact messages stay on one line
"""Machines that cannot be built: what does not plug together, with the exact message, and what is one step inside."""

from __future__ import annotations

import pytest

from sim.config import load_scenario, parse_yaml
from sim.config.machine import machine_from
from sim.errors import MachineError
from sim.topology.machine import Machine

XEON = "{part: xeon-8480, memory: {part: ddr5-4800-2r, channels: 8, capacity: 512 GiB}}"
ROME = "{part: epyc-7742, memory: {part: ddr4-3200, channels: 8, capacity: 512 GiB}}"
GENOA = "{part: epyc-9554p, memory: {part: ddr5-4800-2r, channels: 12, capacity: 768 GiB}}"
LAKE = "{part: xeon-8280, memory: {part: ddr4-2933, channels: 6, capacity: 384 GiB}}"


def built(cpu: str, *devices: str, links: str = "", second: str = "") -> Machine:
    lines = [f"cpu0: {cpu}", *([f"cpu1: {second}"] if second else []), *devices]
    text = "devices:\n" + "".join(f"  {line}\n" for line in lines) + links
    return machine_from(parse_yaml(text, "m.yaml"), name="m")


def fault(*arguments: str, **more: str) -> str:
    with pytest.raises(MachineError) as caught:
        built(*arguments, **more)  # type: ignore[arg-type]
    return str(caught.value.faults[0])


def rate(machine: Machine, source: str, target: str) -> float:
    return next(edge.raw_bytes_per_s for edge in machine.edges if (edge.source, edge.target) == (source, target))


def test_a_link_runs_at_the_generation_that_both_ends_have() -> None:
    card = "gpu0: {part: h100-pcie, to: %s}"
    assert rate(built(XEON, card % "cpu0"), "cpu0", "gpu0") == pytest.approx(63e9, rel=1e-3)
    assert rate(built(ROME, card % "cpu0"), "cpu0", "gpu0") == pytest.approx(31.5e9, rel=1e-3)
    assert rate(built(XEON, "s0: {part: pcie4-switch, to: cpu0}", card % "s0"), "s0", "gpu0") == pytest.approx(31.5e9, rel=1e-3)
    assert rate(built(ROME, "s0: {part: pcie5-switch, to: cpu0}", card % "s0"), "cpu0", "s0") == pytest.approx(31.5e9, rel=1e-3)
    assert fault(ROME, "gpu0: {part: h100-pcie, link: pcie5-x16, to: cpu0}") == (
        "m.yaml:3: devices.gpu0.link.part: pcie5 is faster than what epyc-7742 (cpu0) has; use pcie4"
    )


def test_cxl_needs_a_socket_that_speaks_it() -> None:
    card = "cxl0: {part: cxl-expander-asic-x8, to: cpu0}"
    assert "cxl0" in built(GENOA, card).tiers
    assert fault(ROME, card) == "m.yaml:3: devices.cxl0: epyc-7742 (cpu0) has no CXL; hang it on a socket with CXL"
    future = built(XEON, "cxl0: {part: cxl3-pool-x16, to: cpu0}")  # a CXL 3 device on a CXL 1.1 socket
    assert rate(future, "cpu0", "cxl0") == pytest.approx(63e9, rel=1e-3)


def test_the_lanes_of_an_expander_may_be_written_as_pcie() -> None:
    plain, written = (
        built(GENOA, f"cxl0: {{part: cxl-expander-asic-x8, {link}to: cpu0}}") for link in ("", "link: pcie5-x8, ")
    )
    assert plain.edges == written.edges
    assert load_scenario("cxl-expander-13b").resolve().machine.latency("cpu0", "cxl0") == pytest.approx(230e-9)
    assert rate(built(GENOA, "cxl0: {part: cxl-expander-asic-x8, link: pcie5-x4, to: cpu0}"), "cpu0", "cxl0") == pytest.approx(
        15.75e9, rel=1e-3
    )


def test_pcie_and_cxl_share_the_lanes_of_a_socket() -> None:
    cards = "gpu[0-3]: {part: h100-pcie, to: cpu0}"
    assert built(XEON, cards, "cxl0: {part: cxl-expander-asic-x16, to: cpu0}").gpus()  # 64 + 16 = 80
    assert fault(
        XEON, cards, "cxl0: {part: cxl-expander-asic-x16, to: cpu0}", "cxl1: {part: cxl-expander-asic-x8, to: cpu0}"
    ) == ("m.yaml:5: devices.cxl1: 88 PCIe lanes at cpu0, xeon-8480 has 80; use at most 80")


@pytest.mark.parametrize(
    ("cpu", "device", "expected"),
    [
        (XEON, "gpu0: {part: h100-pcie, link: {lanes: 3}, to: cpu0}", "m.yaml:3: devices.gpu0.link.lanes: no link of 3 lanes exists; use x1, x2, x4, x8, x16"),
        (XEON, "m0: {part: ddr5-4800-2r, to: cpu0}", "m.yaml:3: devices.m0.part: ddr5-4800-2r is a memory technology, not a device; name a device's part"),
        (XEON, "l0: {part: pcie5, to: cpu0}", "m.yaml:3: devices.l0.part: pcie5 is a link, not a device; name a device's part"),
        (GENOA, "cxl0: {part: cxl-expander-asic-x8, capacity: 257 GiB, to: cpu0}", "m.yaml:3: devices.cxl0.capacity: 257 GiB, cxl-expander-asic-x8 holds 256 GiB; use a larger part, or more: count"),
        (GENOA, "p0: {part: optane-dcpmm-256gb, count: 6, to: cpu0}", "m.yaml:3: devices.p0.to: epyc-9554p (cpu0) does not drive persistent memory; hang it on a Xeon of the second or third generation"),
        ("{part: grace-480gb, memory: {part: ddr5-4800-2r, channels: 1, capacity: 64 GiB}}", "gpu0: {part: h100-pcie, to: cpu0}", "m.yaml:2: devices.cpu0.memory: grace-480gb has no DIMM slots, its memory is soldered; remove memory:"),
        ("{part: xeon-6980p, memory: {part: ddr5-6400-2r, channels: 12, capacity: 768 GiB, dimms_per_channel: 2}}", "gpu0: {part: h100-pcie, to: cpu0}", "m.yaml:2: devices.cpu0.memory.dimms_per_channel: 2 DIMMs per channel, xeon-6980p drives 1; use 1"),
    ],
)  # fmt: skip
def test_what_does_not_plug_together(cpu: str, device: str, expected: str) -> None:
    assert fault(cpu, device) == expected


def test_one_step_inside_each_of_them() -> None:
    assert built(XEON, "gpu0: {part: h100-pcie, link: {lanes: 4}, to: cpu0}").gpus()
    assert (
        built(GENOA, "cxl0: {part: cxl-expander-asic-x8, capacity: 512 GiB, count: 2, to: cpu0}").tiers["cxl0"].capacity_bytes
        == 2**39
    )
    assert "p0" in built(LAKE, "p0: {part: optane-dcpmm-256gb, count: 6, to: cpu0}").tiers


@pytest.mark.parametrize(
    ("cpu", "link", "expected"),
    [
        (XEON, "upi-16, lanes: 5", "m.yaml:5: links.s.lanes: 5 UPI links at cpu0, xeon-8480 has 4; use at most 4"),
        (XEON, "upi-24, lanes: 3", "m.yaml:5: links.s.part: upi-24 is faster than what xeon-8480 (cpu0) has; use upi-16"),
        (XEON, "xgmi-socket-32, lanes: 3", "m.yaml:5: links.s.part: xeon-8480 (cpu0) has no xGMI; use a link that the part has"),
        (GENOA, "xgmi-socket-32, lanes: 3", "m.yaml:2: devices.cpu0.part: 2 sockets in one system, epyc-9554p runs in systems of 1; use a part for more sockets, or fewer sockets"),
    ],
)  # fmt: skip
def test_sockets_that_do_not_join(cpu: str, link: str, expected: str) -> None:
    host = cpu.replace("}}", "}, host: h}")
    links = f"links:\n  s: {{part: {link}, between: [cpu0, cpu1]}}\n"
    assert fault(host, links=links, second=host) == expected


def test_sockets_that_join() -> None:
    host = XEON.replace("}}", "}, host: h}")
    machine = built(host, links="links:\n  s: {part: upi-16, lanes: 4, between: [cpu0, cpu1]}\n", second=host)
    assert rate(machine, "cpu0", "cpu1") == pytest.approx(4 * 32e9)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ("between: [gpu0, gpu7]", "m.yaml:5: links.n.between: no device 'gpu7'; devices are cpu0, gpu0"),
        ("mesh: ['acc*']", "m.yaml:5: links.n.mesh: no device 'acc*'; devices are cpu0, gpu0"),
        ("pairs: [[gpu0, gpu1]]", "m.yaml:5: links.n.pairs: no device 'gpu1'; devices are cpu0, gpu0"),
        ("", "m.yaml:5: links.n: the link has no ends; write between: [a, b], mesh, matched or pairs"),
    ],
)
def test_links_to_nowhere(ends: str, expected: str) -> None:
    links = f"links:\n  n: {{part: nvlink4, lanes: 4{', ' if ends else ''}{ends}}}\n"
    assert fault(XEON, "gpu0: {part: h100-pcie, to: cpu0}", links=links) == expected


def test_check_bits_take_a_sixteenth_of_gddr6_only_where_they_are_on() -> None:
    def capacity(card: str) -> float:
        return built(XEON, f"gpu0: {{part: {card}, to: cpu0}}").tiers["gpu0.gddr"].capacity_bytes

    assert capacity("rtx-a6000") - capacity("rtx-a6000, ecc: true") == pytest.approx(3 * 2**30)
    assert capacity("a40, ecc: false") == capacity("rtx-a6000")
    assert capacity("a40") == capacity("a40, ecc: true") == capacity("rtx-a6000, ecc: true")
    assert capacity("a40, capacity: 45 GiB") == 45 * 2**30  # what somebody writes is what programs can use
    assert fault(XEON, "gpu0: {part: h100-pcie, memory: {part: ddr5-4800-2r, channels: 8, capacity: 80 GiB}, to: cpu0}") == (
        "m.yaml:3: devices.gpu0.memory: h100-pcie has no DIMM slots; write capacity: on the device"
    )
