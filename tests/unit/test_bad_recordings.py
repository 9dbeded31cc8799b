"""Every kind of bad recording: the whole message, exit code 2, and no file written; or read, with what was lost counted."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim import cli
from sim.units import format_bytes
from tests.kineto_sample import Sample, plain

GOOD = plain(2).to_bytes()
CUDA = "record with activities CPU and CUDA: torch.profiler.profile(activities=[...])"
UNKNOWN = (
    "is no trace of a known kind; expected a tiersim trace, a PyTorch profiler trace, "
    "a PyTorch execution trace or a Chakra file"
)
NODE = {"id": 1, "name": "aten::mm", "parent": 0, "inputs": [[1, 1, 0, 64, 4, "cuda:0"], [2, 2, 0, 64, 4, "cuda:0"]],
        "input_shapes": [[8, 8], [8, 8]], "input_types": ["Tensor(float)", "Tensor(float)"],
        "outputs": [[3, 3, 0, 64, 4, "cuda:0"]]}  # fmt: skip
TRACE = json.dumps({"schema": "1.0.1", "pid": 1, "nodes": [NODE | {"id": number} for number in range(1, 11)]}).encode()


def edited(change: Callable[[dict[str, Any]], object], *, only: str = "") -> bytes:
    document = json.loads(GOOD)
    for event in document["traceEvents"]:
        if not only or event["cat"] == only or event["name"].startswith(only):
            change(event)
    return json.dumps(document).encode()


def without(key: str) -> bytes:
    return edited(lambda event: event.pop(key, None))


def rank(number: int, size: int, *, step: int = 0) -> bytes:
    content = plain(1, distributedInfo={"rank": number, "world_size": size}).to_bytes()
    return content.replace(b"ProfilerStep#0", f"ProfilerStep#{step}".encode())


def zipped() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("trace.json", GOOD)
    return held.getvalue()


def tarred(**members: bytes) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, content in members.items():
            item = tarfile.TarInfo(name)
            item.size = len(content)
            archive.addfile(item, io.BytesIO(content))
    return held.getvalue()


BOMB = gzip.compress(b"[" + b" " * (100 * 2**20), mtime=0)
REFUSED: dict[str, tuple[bytes | list[bytes], str]] = {
    "empty": (b"", "{0}: is empty"),
    "white-space": (b" \n\t ", "{0}: is empty"),
    "gzip-of-nothing": (gzip.compress(b""), "{0}: is empty after unpacking"),
    "zeros": (b"\0" * 4000, "{0}: holds nothing but zero bytes; copy the file again"),
    "empty-tar": (tarred(), "{0}: holds nothing but zero bytes; copy the file again"),
    "tar-of-nothing": (tarred(a=b""), "{0}: the archive holds no file"),
    "binary-junk": (bytes(range(256)) * 20, "{0}: " + UNKNOWN),
    "zip": (zipped(), "{0}: is a ZIP archive; unpack it first"),
    "zstd": (b"\x28\xb5\x2f\xfd" + b"\1" * 99, "{0}: is packed with zstd; unpack it first"),
    "xz": (b"\xfd7zXZ\0" + b"\1" * 99, "{0}: is packed with xz; unpack it first"),
    "sqlite": (b"SQLite format 3\0" + b"\0" * 99,
    "{0}: is an SQLite database; export text or JSON from the tool that wrote it"),
    "picture": (b"\x89PNG\r\n\x1a\n" + b"\0" * 99, "{0}: is a PNG image; give the text of the output"),
    "pickle": (b"\x80\x04\x95" + b"\0" * 99, "{0}: is a Python pickle; pickles are not read: they run code"),
    "web-page": (b"<!DOCTYPE html><html>", "{0}: is an HTML page, not a trace; download the raw file"),
    "xml": (b"<?xml version='1.0'?><a/>", "{0}: is XML, not a trace; expected a recording of a run"),
    "csv": (b"a,b,c\n1,2,3\n", "{0}: " + UNKNOWN),
    "json-of-something": (b"{}", "{0}: " + UNKNOWN),
    "null": (b"null", "{0}: " + UNKNOWN),
    "deep": (b"[" * 100_000, "{0}: " + UNKNOWN),
    "deepspeed": (
        b'{"zero_optimization": {"stage": 3}}',
        "{0}: is a DeepSpeed configuration, not a trace; a trace is a recording of a run",
    ),
    "model": (
        b'{"architectures": ["LlamaForCausalLM"]}',
        "{0}: is the config.json of a model, not a trace; name it as the model: workload: {{training: {{model: FILE}}}}",
    ),
    "astra-sim": (
        b'{"memory-type": "NO_MEMORY_EXPANSION"}',
        "{0}: is a configuration of ASTRA-sim, not a trace; describe the machine as a topology",
    ),
    "scenario": (
        b"# a job\ntopology: dgx-a100\n", "{0}: is a scenario or a topology, not a trace; run it: tiersim run FILE",
    ),
    "memory-timeline": (
        b"[[-1, 0, 1024, 0]]",
        "{0}: is a memory timeline of the PyTorch profiler, not a trace; give the trace of the same run",
    ),
    "measurement": (
        b"\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n",
        "{0}: is output of nvidia-smi topo -m, rocm-smi --showtopo or amd-smi topology, not a trace; it describes a machine: "
        "tiersim import machine --topo FILE",
    ),
    "no-events": (b'{"traceEvents": []}', "{0}: has no CPU or GPU events (found nothing); " + CUDA),
    "events-null": (
        b'{"traceEvents": null}', "{0}: 'traceEvents' is no list: it begins with 'n'; expected a PyTorch profiler trace",
    ),
    "events-object": (
        b'{"traceEvents": {}}', "{0}: 'traceEvents' is no list: it begins with '{{'; expected a PyTorch profiler trace",
    ),
    "events-numbers": (
        b'{"traceEvents": [1, 2]}',
        "{0}: holds no complete event (Expected `object`, got `int` - at `$.traceEvents[0]`); record it again, "
        "or copy it again",
    ),
    "events-deep": (
        b'{"traceEvents": ' + b"[" * 100_000,
        "{0}: holds no complete event (Expected `object`, got `array` - at `$.traceEvents[0]`); "
        "record it again, or copy it again",
    ),
    "cut-before-the-first-event": (
        GOOD[: GOOD.index(b'"traceEvents"') + 40],
        "{0}: holds no complete event (Input data was truncated); record it again, or copy it again",
    ),
    "cut-gzip": (
        gzip.compress(GOOD, compresslevel=0, mtime=0)[:-40],
        "{0}: gzip stream is cut after 2.29 KiB of content; copy the file again",
    ),
    "damaged-gzip": (
        b"\x1f\x8b" + b"\0" * 50,
        "{0}: damaged gzip stream: Error -3 while decompressing data: unknown compression method",
    ),
    "bomb": (
        BOMB,
        f"{{0}}: is too large: more than 64 MiB of content from {format_bytes(len(BOMB))} packed (a gzip bomb?); "
        "record fewer steps, or split the file",
    ),
    "half-utf16": (
        b"\xff\xfe[\0\x00\xd8", "{0}: begins as UTF-16 text and is not: 'utf-16-le' codec can't decode bytes in position "
        "4-5: unexpected end of data; save it as UTF-8",
    ),
    "nan-durations": (
        GOOD.replace(b'"dur": 50.000', b'"dur": NaN'),
        "{0}: has no GPU kernels or copies that can be used (6 events ignored: no time or duration); record it again",
    ),
    "infinite-durations": (
        GOOD.replace(b'"dur": 50.000', b'"dur": 1e999'),
        "{0}: has no GPU kernels or copies that can be used (6 events ignored: no time or duration); record it again",
    ),
    "negative-durations": (
        GOOD.replace(b'"dur": 50.000', b'"dur": -50.000'),
        "{0}: has no GPU kernels or copies that can be used (6 events ignored: negative duration); record it again",
    ),
    "no-times": (
        without("ts"), "{0}: has no usable CPU or GPU event: 16 events ignored: no time or duration; record it again",
    ),
    "no-durations": (
        without("dur"), "{0}: has no usable CPU or GPU event: 16 events ignored: no time or duration; record it again",
    ),
    "no-kinds": (
        without("cat"),
        "{0}: has 16 events and none with a category ('cat'); "
        "record with torch.profiler: traces of its predecessor, of JAX and of TensorFlow are not read",
    ),
    "cpu-only": (
        edited(lambda event: event.update(cat="python_function"), only="kernel"),
        "{0}: has no GPU kernels or copies; record with ProfilerActivity.CUDA",
    ),
    "rank-twice": ([rank(0, 2), rank(0, 2)], "{1}: rank 0 is given 2 times; give one file per rank"),
    "ranks-of-two-jobs": ([rank(0, 2), rank(1, 4)], "{1}: traces of different jobs: world sizes 2, "
    "4; give the ranks of one job"),
    "ranks-of-other-steps": (
        [rank(0, 2), rank(1, 2, step=7)],
        "{0}: the ranks recorded different steps: ProfilerStep#0, ProfilerStep#7; give recordings of the same steps",
    ),
    "mixed-kinds": ([GOOD, TRACE], "files of different kinds: kineto, pytorch-et; give the ranks of one recording"),
    "execution-trace-without-nodes": (
        b'{"schema": "1.0.1", "nodes": 5}',
        "{0}: is no execution trace: Expected `array`, got `int` - at `$.nodes`; copy it again",
    ),
    "execution-trace-without-gpu": (
        TRACE.replace(b"cuda:0", b"cpu"), "{0}: has no operator on GPU tensors; record an iteration that runs on a GPU",
    ),
    "execution-trace-cut-in-its-first-node": (
        TRACE[:90], "{0}: is no execution trace: Input data was truncated; copy it again",
    ),
}  # fmt: skip

READ: dict[str, tuple[bytes, str]] = {
    "cut": (GOOD[: len(GOOD) // 3], "damaged file: 5 whole events read, the last 4.0% of 791 B lost"),
    "one-nan": (GOOD.replace(b'"dur": 50.000', b'"dur": NaN', 1), "1 events ignored: no time or duration"),
    "one-negative": (GOOD.replace(b'"dur": 50.000', b'"dur": -50.000', 1), "1 events ignored: negative duration"),
    "zero-length-steps": (
        edited(lambda event: event.update(dur=0), only="ProfilerStep"), "2 steps of zero length ignored",
    ),
    "no-names": (without("name"), "no step marks: the whole recording is taken as one step"),
    "no-arguments": (without("args"), "6 of 6 GPU events have no launch in the recording: ordered by stream only"),
    "utf-8-mark": (b"\xef\xbb\xbf" + GOOD, "found by ProfilerStep marks"),
    "utf-16": (GOOD.decode().encode("utf-16"), "found by ProfilerStep marks"),
    "utf-32": (GOOD.decode().encode("utf-32"), "found by ProfilerStep marks"),
    "cut-execution-trace": (TRACE[: len(TRACE) // 2], "damaged file: 4 whole nodes read, the last"),
    "odd-nodes": (TRACE.replace(b'"id": 3', b'"id": "x"'), "nodes of another form (left out): 1"),
}  # fmt: skip


def imported(contents: list[bytes], folder: Path) -> tuple[int, list[Path], Path]:
    files = [folder / f"rank{number}.json" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    target = folder / "step.jsonl"
    return cli.run(["import", "trace", *map(str, files), "-o", str(target)]), files, target


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_recording_is_refused_in_one_line_and_nothing_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = REFUSED[name]
    code, files, target = imported(content if isinstance(content, list) else [content], tmp_path)
    printed = capsys.readouterr()
    assert printed.err == message.format(*files) + "\n"
    assert (code, printed.out) == (2, "")
    assert not target.exists()
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize("name", READ)
def test_what_is_whole_is_read_and_what_was_lost_is_told(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, note = READ[name]
    code, _, target = imported([content], tmp_path)
    assert code == 0
    assert note in capsys.readouterr().err
    assert target.stat().st_size > 0


def test_hostile_names_stay_text_in_every_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = Sample(deviceProperties=[{"name": "NVIDIA A100-SXM4-80GB"}])
    sample.step(0, 0, 1000)
    for at in (100.0, 300.0):
        sample.launch(at, at + 10, 100, name="<script>alert(1)</script>\x1b[31m\u2028" + "x" * 9000)
    (tmp_path / "rank0.json").write_bytes(sample.to_bytes())
    (tmp_path / "job.yaml").write_text("topology: dgx-a100\nworkload: {trace: {file: rank0.json}}\n")
    assert cli.run(["run", str(tmp_path / "job.yaml"), "--out", str(tmp_path / "out")]) == 0
    (folder,) = (path.parent for path in (tmp_path / "out").rglob("summary.json"))
    page = tmp_path / "page.html"
    assert cli.run(["report", str(folder), "--out", str(page)]) == 0
    printed = capsys.readouterr()
    assert "<script>alert" not in page.read_text(encoding="utf-8")
    assert "\x1b[31m" not in printed.out + printed.err + page.read_text(encoding="utf-8")
    assert cli.run(["export", "timeline", str(tmp_path / "job.yaml"), "-o", str(tmp_path / "t.json")]) == 0
    names = {event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert all(len(name) <= 300 and "\x1b" not in name for name in names)
