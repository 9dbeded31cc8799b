"""DRAM as a cache of persistent memory: what hits is played line by line, what moves is counted, both sides of a full DRAM."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config import parse_yaml, scenario_of
from sim.config.machine import machine_from
from sim.errors import MachineError
from sim.experiment import run
from sim.laws.memory_mode import hit_share, moved
from sim.topology.machine import Machine

SOCKET = "cpu0: {part: xeon-8280, memory: {part: ddr4-2666, channels: 6, capacity: %s}}"
MODULES = "pmem0: {part: optane-dcpmm-256gb, count: 6, to: cpu0%s}"


def built(modules: str = ", mode: memory", dram: str = "192 GiB", more: str = "") -> Machine:
    text = f"devices:\n  {SOCKET % dram}\n  {MODULES % modules}\n{more}"
    return machine_from(parse_yaml(text, "m.yaml"), name="m")


def played(places: list[int]) -> float:
    """Share of hits of the second of two sweeps over pages that have these places in a direct-mapped cache."""
    cache: dict[int, int] = {}
    hits = 0
    for sweep in range(2):
        for page, place in enumerate(places):
            hits += sweep == 1 and cache.get(place) == page
            cache[place] = page
    return hits / len(places)


@pytest.mark.parametrize("filled", [0.1, 0.5, 1.0, 1.5, 2.5])
def test_hits_are_those_of_a_cache_that_is_played(filled: float) -> None:
    size, draw = 20_000, random.Random(7)
    pages = int(filled * size)
    assert hit_share(pages, size) == pytest.approx(played([draw.randrange(size) for _ in range(pages)]), abs=0.012)
    assert hit_share(pages, size, is_scattered=False) == pytest.approx(played([page % size for page in range(pages)]), abs=1e-3)


def test_contiguous_pages_hit_until_dram_is_full_and_miss_all_from_twice_that() -> None:
    assert hit_share(100, 100, is_scattered=False) == 1.0
    assert hit_share(101, 100, is_scattered=False) == pytest.approx(99 / 101)
    assert hit_share(199, 100, is_scattered=False) > 0.0
    assert hit_share(200, 100, is_scattered=False) == 0.0


@pytest.mark.parametrize(
    ("write_share", "miss", "accesses"),
    [(0.0, 0.0, 1), (0.0, 1.0, 3), (1.0, 0.0, 2), (1.0, 1.0, 5)],  # ISPASS 2021; a read's dirty victim is its writer's
)
def test_accesses_of_one_line(write_share: float, miss: float, accesses: int) -> None:
    assert sum(moved(write_share, miss)) == pytest.approx(accesses)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_more_misses_never_move_less(write_share: float, one: float, other: float) -> None:
    few, many = (moved(write_share, miss) for miss in sorted((one, other)))
    assert all(a <= b + 1e-12 for a, b in zip(few, many, strict=True))
    assert many.far_written == pytest.approx(write_share * max(one, other))


def test_the_modules_become_the_sockets_memory() -> None:
    direct, cached = built(""), built()
    assert set(direct.tiers) == {"cpu0.dram", "pmem0"}
    assert {name: tier.capacity_bytes for name, tier in cached.tiers.items()} == {"cpu0.dram": 6 * 256 * 2**30}
    assert cached.access("cpu0", "cpu0.dram") == direct.access("cpu0", "cpu0.dram")  # nothing in use: all hits
    full = cached.media["cpu0.dram"].filled(1e12).uses(0.4)
    assert [name for name, _ in full] == ["cpu0.dram", "pmem0"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"modules": ", mode: memory, capacity: 192 GiB"},
            "m.yaml:3: devices.pmem0.mode: 192 GiB of DRAM as a cache of 192 GiB; more",
        ),
        ({"modules": ", page_layout: contiguous"}, "m.yaml:3: devices.pmem0.page_layout: no DRAM caches this device; write"),
        (
            {"modules": "", "more": "  nvme0: {part: nvme-pcie3-2tb, to: cpu0, mode: memory}\n"},
            "m.yaml:4: devices.nvme0.mode: nvme-pcie3-2tb is not persistent memory; write it on modules",
        ),
    ],
)
def test_what_cannot_be_a_cache_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(MachineError) as caught:
        built(**change)
    assert str(caught.value.faults[0]).startswith(message)
    assert built(", mode: memory, capacity: 193 GiB").tiers  # a GiB more than the DRAM


@pytest.fixture(scope="module")
def seconds() -> Callable[[int, dict[str, str], str], float]:
    def solved(layers: int, modules: dict[str, str], states: str) -> float:
        model = {"layers": layers, "hidden": 4096, "heads": 32, "ffn": 11008, "vocabulary": 32000}
        changes = {"cpu1": None, "pmem1": None, "sockets": None, **{f"pmem0.{key}": text for key, text in modules.items()}}
        training = {
            "model": model, "sequence_length": 2048, "batch_size": 1, "framework": "deepspeed-zero",
            "checkpointing": {"active": True}, "parallelism": {"zero_stage": 2},
        }  # fmt: skip
        body = {
            "name": "t", "topology": {"base": "xeon-optane", "set": changes}, "workload": {"training": training},
            "placement": {"optimizer_states": states},
        }  # fmt: skip
        return run(scenario_of(body, file="").resolve(), with_penalty=False).summary.step_time_s

    return solved


def test_memory_mode_between_dram_and_optane_while_all_fits(seconds: Callable[[int, dict[str, str], str], float]) -> None:
    dram, optane = seconds(16, {}, "dram"), seconds(16, {}, "pmem0")
    scattered = seconds(16, {"mode": "memory"}, "dram")
    assert dram < scattered < optane
    assert seconds(16, {"mode": "memory", "page_layout": "contiguous"}, "dram") == pytest.approx(dram)


def test_an_answer_from_memory_mode_is_not_measured_against_the_memory_of_the_other_socket() -> None:
    changes = {"gpu0": None, "pmem0.mode": "memory", "pmem1.mode": "memory"}
    inference = {
        "model": "mixtral-8x7b", "weights": "q8_0", "framework": "llama.cpp", "device": "cpu", "prompt_length": 16,
        "output_length": 4,
    }  # fmt: skip
    body = {"topology": {"base": "xeon-optane", "set": changes}, "workload": {"inference": inference}}
    result = run(scenario_of(body, file="").resolve())
    assert result.offload_penalty == 1.0
    assert any("76 % of the lines hit" in note for note in result.assumptions)
