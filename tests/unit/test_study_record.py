"""Recording a real command: the samples see what it does, and the file survives a cut."""

import sys

import pytest

from sim.errors import InputError
from sim.probe.gpu_counters import parse_nvidia_smi
from sim.probe.record import read_recording, record

pytest.importorskip("psutil")
_BURN = "import time; data = bytearray(64 << 20); end = time.monotonic() + 0.8\nwhile time.monotonic() < end: pass"


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("rec") / "run.jsonl"
    assert record([sys.executable, "-c", _BURN], path, interval_s=0.2) == 0
    return path


def test_samples_see_the_command(recording):
    read = read_recording(recording)
    assert read.end is not None
    assert read.end.exit_code == 0
    assert read.end.elapsed_s >= 0.8
    assert 2 <= len(read.samples) <= 20
    assert [sample.time_s for sample in read.samples] == sorted(sample.time_s for sample in read.samples)
    assert max(sample.process_cores for sample in read.samples) > 0.05
    assert max(sample.process_bytes for sample in read.samples) > 64 << 20
    assert all(0 <= sample.cpu_busy <= 1 for sample in read.samples)
    assert all(0 < sample.memory_used_bytes < read.header.memory_bytes for sample in read.samples)


def test_a_cut_file_reads_up_to_its_last_whole_line(recording, tmp_path):
    text = recording.read_bytes()
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(text[: len(text) - 10])
    assert read_recording(cut).end is None
    assert len(read_recording(cut).samples) == len(read_recording(recording).samples)


def test_exit_code_is_the_commands(tmp_path):
    assert record([sys.executable, "-c", "raise SystemExit(7)"], tmp_path / "a", interval_s=0.1) == 7


@pytest.mark.parametrize(
    ("command", "interval_s", "said"),
    [([], 1, "no command"), (["/no/such/program"], 1, "cannot start"), (["true"], 0.001, "interval")],
)
def test_what_cannot_be_recorded(command, interval_s, said, tmp_path):
    with pytest.raises(InputError, match=said):
        record(command, tmp_path / "a", interval_s=interval_s)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("text", ["", "hello\n", '{"line":"end","elapsed_s":1,"exit_code":0}\n', "{}\n"])
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "other"
    path.write_text(text)
    with pytest.raises(InputError, match="not a recording"):
        read_recording(path)


def test_nvidia_smi_lines():
    text = "0, 87, 41, 20480, 24564, 301.5\n1, [N/A], 0, 12, 24564, [N/A]\nnoise\n"
    first, second = parse_nvidia_smi(text)
    assert (first.busy, first.memory_busy, first.memory_used_bytes, first.power_w) == (0.87, 0.41, 20480 * 2**20, 301.5)
    assert (second.index, second.busy, second.power_w) == (1, 0.0, 0.0)
