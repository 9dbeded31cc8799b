"""The Perfetto export: every operation is a bar, areas are kept, nothing is cut silently."""

import gzip
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sim.interchange.perfetto import write_timeline
from sim.records import Channel, ChannelSegment, Kind, Occupancy, Operation, OperationRecord, Program, Replay, Stream, Tier


def example(count: int) -> tuple[Program, Replay]:
    """`count` pairs of a copy (1 s) and the kernel that waits for it (0.5 s), and what was seen of them."""
    operations, records, segments = [], [], []
    for i in range(count):
        copy = Operation(id=f"c{i}", kind=Kind.TRANSFER, stream="rank0.h2d", sequence=i, name=f"copy </script>{i}")
        kernel = Operation(id=f"k{i}", kind=Kind.COMPUTE, stream="rank0.compute", sequence=i, after=(f"c{i}",))
        operations += [copy, kernel]
        records.append(OperationRecord(id=f"c{i}", ready_s=i, start_s=i, end_s=i + 1))
        records.append(OperationRecord(id=f"k{i}", ready_s=i + 1, start_s=i + 1, end_s=i + 1.5))
        segments.append(ChannelSegment(name="pcie.up", start_s=i, end_s=i + 0.75, rate_per_s=1e9 * (1 + i % 3)))
    program = Program(
        name="p", channels=(Channel(name="pcie.up", bandwidth_per_s=4e9),), tiers=(Tier(name="gpu0.hbm", capacity_bytes=1),),
        streams=(Stream(name="rank0.compute", multiplicity=4), Stream(name="rank0.h2d", multiplicity=4)),
        operations=tuple(operations),
    )  # fmt: skip
    occupancy = tuple(
        Occupancy(time_s=i, tier="gpu0.hbm", tensor_class="weights", size_bytes=2**30 * (i % 5)) for i in range(count)
    )
    replay = Replay(
        makespan_s=count + 0.5, operations=tuple(records), channels=(), tiers=(), segments=tuple(segments), occupancy=occupancy
    )
    return program, replay


def events(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(json.loads(data)["traceEvents"])


def counter_area(found: list[dict[str, Any]]) -> float:
    """Integral of the rate counter in bytes."""
    rows = sorted((e["ts"] / 1e6, e["args"]["rate"] * 1e9) for e in found if e["ph"] == "C" and "GB/s" in e["name"])
    return sum(rate * (then - now) for (now, rate), (then, _) in itertools.pairwise(rows))


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_every_operation_is_a_bar_on_its_track(tmp_path: Path, name: str) -> None:
    program, replay = example(3)
    written = write_timeline(program, replay, tmp_path / name)
    found = events(tmp_path / name)
    assert written.num_events == len(found)
    assert written.summarised == ""
    bars = {e["args"]["id"]: e for e in found if e["ph"] == "X"}
    assert (bars["k1"]["ts"], bars["k1"]["dur"]) == (2e6, 0.5e6)
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert tracks[bars["k1"]["pid"], bars["k1"]["tid"]] == "compute"
    assert tracks[bars["c1"]["pid"], bars["c1"]["tid"]] == "h2d"
    assert [e["args"]["name"] for e in found if e["name"] == "process_name"] == [
        "rank0 (one of 4 identical)",
        "channels and tiers",
    ]
    assert bars["c0"]["name"] == "copy </script>0"  # the format carries any text; who embeds it in HTML escapes it


def test_arrows_start_inside_the_first_bar_and_end_at_the_second(tmp_path: Path) -> None:
    write_timeline(*example(2), tmp_path / "t.json")
    found = events(tmp_path / "t.json")
    starts = {e["id"]: e for e in found if e["ph"] == "s"}
    ends = {e["id"]: e for e in found if e["ph"] == "f"}
    assert starts.keys() == ends.keys() == {1, 2}
    assert 0 <= starts[1]["ts"] < 1e6
    assert ends[1]["ts"] == 1e6


def test_counters_return_to_zero_between_segments(tmp_path: Path) -> None:
    _, replay = example(4)
    write_timeline(*example(4), tmp_path / "t.json")
    carried = sum(s.rate_per_s * (s.end_s - s.start_s) for s in replay.segments)
    assert counter_area(events(tmp_path / "t.json")) == pytest.approx(carried, rel=1e-9)


def test_a_large_run_is_summarised_and_says_so(tmp_path: Path) -> None:
    program, replay = example(3000)
    limit = 2000
    written = write_timeline(program, replay, tmp_path / "t.json", max_events=limit)
    found = events(tmp_path / "t.json")
    assert len(found) <= limit
    assert "6,000 operations" in written.summarised
    assert any(e["ph"] == "i" and "6,000 operations" in e["name"] for e in found)
    shown = Counter[str]()
    for bar in (e for e in found if e["ph"] == "X"):
        shown[bar["cat"]] += bar["args"].get("operations", 1)
    assert sum(shown.values()) == 6000
    carried = sum(s.rate_per_s * (s.end_s - s.start_s) for s in replay.segments)
    assert counter_area(found) == pytest.approx(carried, rel=1e-6)
    assert max(e["args"]["weights"] for e in found if "GiB" in e["name"]) == 4


def test_a_run_at_the_limit_is_not_summarised(tmp_path: Path) -> None:
    program, replay = example(10)
    total = 20 + 2 * 10 + 10 + 10
    assert write_timeline(program, replay, tmp_path / "t.json", max_events=total).summarised == ""
    assert write_timeline(program, replay, tmp_path / "t.json", max_events=total - 1).summarised != ""
