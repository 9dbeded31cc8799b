"""Pictures: numbers on them are right, legends lie outside the data, nothing is cut off, equal runs give equal files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sim.config import load_machine
from sim.metrics import summarise
from sim.metrics.summary import TierUse
from sim.records import (
    Channel,
    ChannelSegment,
    ChannelTotal,
    Kind,
    Occupancy,
    Operation,
    OperationRecord,
    Program,
    Replay,
    Stream,
    Tier,
    TierPeak,
)
from sim.report import bars, curves, findings, gantt, machine_picture, over_time, style, validation

GIB = 2.0**30
PROGRAM = Program(
    name="p",
    channels=(Channel(name="cpu0->gpu0.pcie", bandwidth_per_s=25e9), Channel(name="cpu0.dram", bandwidth_per_s=240e9)),
    tiers=(Tier(name="gpu0.gddr", capacity_bytes=24 * GIB), Tier(name="cpu0.dram", capacity_bytes=512 * GIB)),
    streams=(
        Stream(name="rank.compute", device="gpu0", role="compute", multiplicity=2),
        Stream(name="rank.h2d", device="gpu0", role="h2d", multiplicity=2),
        Stream(name="rank.cpu", device="cpu0", role="cpu", multiplicity=2),
    ),
    operations=(
        Operation(id="f", kind=Kind.COMPUTE, stream="rank.compute", sequence=0, work=3.0, rate_cap=1.0),
        Operation(id="h", kind=Kind.TRANSFER, stream="rank.h2d", sequence=0, category="transfer"),
        Operation(id="u", kind=Kind.HOST_UPDATE, stream="rank.cpu", sequence=0, category="cpu_optimizer"),
    ),
    num_tokens=1000.0,
)
REPLAY = Replay(
    makespan_s=5.0,
    operations=(
        OperationRecord(id="f", ready_s=0.0, start_s=0.0, end_s=3.0),
        OperationRecord(id="h", ready_s=2.0, start_s=2.0, end_s=4.0),
        OperationRecord(id="u", ready_s=4.0, start_s=4.0, end_s=5.0),
    ),
    channels=(
        ChannelTotal(name="cpu0->gpu0.pcie", amount=50e9, busy_s=2.0, saturated_s=2.0, peak_rate_per_s=25e9),
        ChannelTotal(name="cpu0.dram", amount=120e9, busy_s=1.0, saturated_s=0.0, peak_rate_per_s=120e9),
    ),
    tiers=(
        TierPeak(name="gpu0.gddr", peak_bytes=20 * GIB, time_s=2.0, operation="f", by_class={"weights": 20 * GIB}),
        TierPeak(name="cpu0.dram", peak_bytes=100 * GIB, time_s=0.0, operation="", by_class={"optimizer_states": 100 * GIB}),
    ),
    segments=(
        ChannelSegment(name="cpu0->gpu0.pcie", start_s=2.0, end_s=4.0, rate_per_s=25e9),
        ChannelSegment(name="cpu0.dram", start_s=4.0, end_s=5.0, rate_per_s=120e9),
    ),
    occupancy=(
        Occupancy(time_s=0.0, tier="gpu0.gddr", tensor_class="weights", size_bytes=10 * GIB),
        Occupancy(time_s=2.0, tier="gpu0.gddr", tensor_class="activations", size_bytes=10 * GIB),
        Occupancy(time_s=0.0, tier="cpu0.dram", tensor_class="optimizer_states", size_bytes=100 * GIB),
    ),
)
SUMMARY = summarise(PROGRAM, REPLAY)
POINTS = [
    {"parameters": {"workload.training.batch_size": batch, "topology": machine}, "fits": batch < 8, "step_time_s": batch * t}
    for machine, t in (("a", 1.0), ("b", 2.0))
    for batch in (1, 2, 4, 8)
]
DRAWERS: dict[str, Callable[[Path], Path]] = {
    "step": lambda path: gantt.draw_timeline(PROGRAM, REPLAY, path, finding=findings.of_step("demo", SUMMARY, fits=True)),
    "breakdown": lambda path: bars.draw_breakdown(
        [("demo", SUMMARY.breakdown_s), ("everything in\nthe fastest tier", {"compute": 3.0})],
        path,
        finding=findings.of_breakdown("demo", SUMMARY.breakdown_s),
    ),
    "memory": lambda path: bars.draw_tiers(SUMMARY.tiers, path, finding=findings.of_tiers("demo", SUMMARY.tiers)),
    "occupancy": lambda path: over_time.draw_occupancy(PROGRAM, REPLAY, {}, path, finding="demo"),
    "channels": lambda path: over_time.draw_channels(PROGRAM, REPLAY, SUMMARY.channels, path, finding="demo"),
    "sweep": lambda path: curves.draw_sweep("demo", POINTS, "step_time_s", path),
    "machine": lambda path: machine_picture.draw_machine(load_machine("dgx-a100"), path),
}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Figures as they are when they are saved."""
    figures: list[Any] = []

    def keep(fig: Any, path: Path) -> Path:
        figures.append(fig)
        return style.save(fig, path)

    for module in (gantt, bars, over_time, curves, machine_picture):
        monkeypatch.setattr(module, "save", keep)
    return figures


@pytest.mark.parametrize("name", DRAWERS)
def test_layout(name: str, drawn: list[Any], tmp_path: Path) -> None:
    path = DRAWERS[name](tmp_path / f"{name}.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    (fig,) = drawn
    renderer = fig.canvas.get_renderer()
    page = fig.bbox
    for legend in fig.legends:
        box = legend.get_window_extent(renderer)
        assert not any(box.overlaps(axes.get_window_extent(renderer)) for axes in fig.axes), "legend over data"
    texts = [fig._suptitle, *(text for axes in fig.axes for text in (axes.xaxis.label, axes.yaxis.label, *axes.texts))]
    for text in texts:
        if text.get_text():
            box = text.get_window_extent(renderer)
            assert page.x0 - 1 <= box.x0 <= box.x1 <= page.x1 + 1, f"{text.get_text()!r} is cut off"
            assert page.y0 - 1 <= box.y0 <= box.y1 <= page.y1 + 1, f"{text.get_text()!r} is cut off"
    assert "demo" in fig._suptitle.get_text() or name == "machine"


def test_equal_runs_give_equal_files(tmp_path: Path) -> None:
    first, second = (DRAWERS["step"](tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert first == second


def test_every_axis_has_its_unit(drawn: list[Any], tmp_path: Path) -> None:
    for name in ("step", "breakdown", "memory", "channels", "occupancy", "sweep"):
        DRAWERS[name](tmp_path / f"{name}.png")
    labels = {axes.get_xlabel() for fig in drawn for axes in fig.axes} | {
        axes.get_ylabel() for fig in drawn for axes in fig.axes
    }
    assert {"time in the step (s)", "time of the slowest rank's step (s)", "mean (%)", "GiB", "step time (s)"} <= labels


def test_findings_state_numbers() -> None:
    assert findings.of_step("demo", SUMMARY, fits=True) == "demo: one step takes 5 s, no single resource binds"
    assert findings.of_step("demo", SUMMARY, fits=False).startswith(
        "demo does not fit; with more memory one step would take 5 s"
    )
    assert findings.of_step("demo", SUMMARY, fits=True, subject="answer").startswith("demo: the whole answer takes 5 s")
    assert " of the answer is " in findings.of_breakdown("demo", SUMMARY.breakdown_s, subject="answer")
    assert findings.of_breakdown("demo", SUMMARY.breakdown_s) == (
        "demo: 60 % of the step is compute; exposed transfer costs 20 %"
    )
    assert findings.of_tiers("demo", SUMMARY.tiers) == "demo fits: the fullest tier is gpu0.gddr at 83.3 %"
    over = {"gpu0.gddr": TierUse(capacity_bytes=10.0, peak_bytes=12.0)}
    assert findings.of_tiers("demo", over) == "demo does not fit: gpu0.gddr would need 120 % of its capacity"
    assert findings.of_channels("demo", SUMMARY.channels) == (
        "demo: the busiest channel is cpu0->gpu0.pcie, at 40 % of its bandwidth"
    )
    assert curves.finding("demo", POINTS, "step_time_s") == (
        "demo: step time is lowest at batch_size 1, topology a: 1 s, 8x better than the worst point"
    )


def test_utilisation_bins_keep_the_bytes() -> None:
    bandwidth = {"cpu0->gpu0.pcie": 25e9, "cpu0.dram": 240e9}
    bins = over_time.utilisation_bins(REPLAY.segments, list(bandwidth), bandwidth, REPLAY.makespan_s, num_bins=7)
    for name, amount in (("cpu0->gpu0.pcie", 50e9), ("cpu0.dram", 120e9)):
        assert sum(bins[name]) * bandwidth[name] * 5.0 / 7 == pytest.approx(amount)
    assert bins["cpu0->gpu0.pcie"][0] == 0.0


def test_sweep_axis_is_the_parameter_with_most_values() -> None:
    assert curves.axes_of_sweep(POINTS) == ("workload.training.batch_size", ["topology"])
    words = [{"parameters": {"topology": name, "lanes": 4}} for name in "abc"]
    assert curves.axes_of_sweep(words) == ("topology", [])


def test_colours_of_categories_differ() -> None:
    assert len(set(style.COLOURS.values())) == len(style.COLOURS)
    assert len(set(style.TENSORS.values())) == len(style.TENSORS)


@pytest.mark.parametrize(
    ("phases", "shown", "label"),
    [
        ((("forward", 0),), "one step", "time in the step (s)"),
        ((("prefill", 0),), "the prompt", "time since the prompt (s)"),
        ((("prefill", 0), ("decode", 1), ("decode", 1), ("decode", 9)), "the prompt and 2 of the answer's other tokens",
         "time since the prompt (s)"),
    ],
)  # fmt: skip
def test_a_timeline_says_what_it_shows(phases, shown, label):
    stream = Stream(name="rank.compute", device="gpu0", role="compute")
    operations = tuple(
        Operation(id=f"o{index}", kind=Kind.MARKER, stream=stream.name, sequence=index, phase=phase, micro_batch=token)
        for index, (phase, token) in enumerate(phases)
    )
    program = Program(name="demo", channels=(), tiers=(), streams=(stream,), operations=operations)
    assert findings.what_is_shown(program) == shown
    assert findings.time_label(program, "s") == label


def test_a_short_operation_of_a_long_step_is_seen() -> None:
    short = msgspec.structs.replace(REPLAY.operations[1], start_s=2.0, end_s=2.0 + 1e-6)
    replay = msgspec.structs.replace(REPLAY, operations=(REPLAY.operations[0], short, REPLAY.operations[2]))
    fig = gantt.timeline_figure(PROGRAM, replay, finding="x")
    axes = fig.axes[0]
    widths = [path.get_extents().width for bars in axes.collections for path in bars.get_paths()]
    span = axes.get_xlim()[1] - axes.get_xlim()[0]
    assert min(widths) / span * fig.get_size_inches()[0] * 150 > 1.0  # points of the saved picture


def test_a_title_keeps_a_number_beside_its_unit() -> None:
    fig = style.figure(4.0, 3.0)
    style.titled(fig, "an answer's time per token takes 15 ms where")
    assert fig.get_suptitle().splitlines() == ["an answer's time per token takes", "15 ms where"]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ({}, "no values"),
        (
            {"a": [(1.05, 1.0, "s"), (0.8, 1.0, "s")], "b": [(2.0, 1.0, "s")]},
            "of 3 values 33 % within ±10 %, 67 % within ±25 %",
        ),
    ],
)
def test_parity_says_how_many_values_lie_in_the_bands(
    pairs: dict[str, Any], said: str, tmp_path: Path, monkeypatch: Any
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("matplotlib.figure.Figure.suptitle", lambda _self, text, **_style: seen.append(text))
    validation.parity(pairs, tmp_path / "p.png")
    assert said in seen[0]
