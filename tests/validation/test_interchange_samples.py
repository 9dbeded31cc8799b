"""Real recordings (TIERSIM_SAMPLE_FILES): each read or refused with a reason, and replayed close to what was recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.config import load_machine
from sim.errors import InputError
from sim.interchange.load import load_trace
from sim.interchange.machines import read_figures, read_layout
from sim.program.collectives import collective
from sim.study.machine_import import machine_document, write_machine
from sim.study.survey import SurveyRow, medians, survey
from sim.topology.machine import Machine

FOLDER = Path(os.environ.get("TIERSIM_SAMPLE_FILES", "/nonexistent"))
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="set TIERSIM_SAMPLE_FILES to the folder of sample files")
#: kinds of `index.csv` that hold no trace
OTHERS = ("fio", "hwloc", "mlc", "nccl_tests", "nvbandwidth", "nvidia_smi_topo", "stream", "gpu_copy")


def rows_of(*kinds: str) -> list[SurveyRow]:
    return list(survey(path for kind in kinds for path in sorted((FOLDER / kind).glob("*"))))


@pytest.mark.slow
def test_recordings_replay_close_to_what_was_recorded() -> None:
    rows = rows_of("kineto")
    read = [row for row in rows if row.verdict == "read"]
    assert len(read) >= 0.9 * len(rows)
    assert all(row.num_operations > 0 for row in read)
    assert all(row.message for row in rows if row.verdict == "refused")
    found = medians(rows)
    assert found["error"][0] < 0.03
    assert found["other_step_error"][0] < 0.05
    assert found["other_rank_error"][0] < 0.15


@pytest.mark.slow
def test_chakra_and_execution_traces_are_read_or_refused() -> None:
    rows = rows_of("chakra", "pytorch_et")
    assert [Path(row.file).name for row in rows if row.verdict == "refused"] == [
        "et_def.proto",
        "stage_llama_tiny_comm_groups.json",
    ]
    assert all(row.num_operations > 0 for row in rows if row.verdict == "read")


def test_files_that_are_no_traces_are_refused() -> None:
    rows = rows_of(*OTHERS)
    assert len(rows) > 40
    assert all(row.verdict == "refused" and row.message for row in rows)


def test_ranks_given_apart_are_joined() -> None:
    (path,) = (FOLDER / "kineto").glob("param_dlrm_kineto*")
    step = load_trace(path)
    assert len(step.rank_classes) == 8
    assert any(note.startswith("ranks start up to") for note in step.notes)
    assert any(note.startswith("collectives joined over the ranks given") for note in step.notes)


#: kind in the folder -> option of `tiersim import machine`
OPTIONS = {
    "hwloc": "hwloc", "nvidia_smi_topo": "topo", "mlc": "mlc", "stream": "stream", "nvbandwidth": "nvbandwidth",
    "nccl_tests": "nccl", "fio": "fio", "gpu_copy": "copies",
}  # fmt: skip
#: files that do not name their GPU, of a kind that no guess fits
GPUS = {"gb200": "gb200", "gb300": "gb300-workstation", "gpu_stream": "b200-sxm"}
#: files that hold no whole result, and why
REFUSED = {
    "hwloc2.dtd": "is damaged XML", "glued_cells_synthetic.txt": "cells are glued together: 'NODENODE'",
    "vc_StreamInvalid.txt": "is not output of STREAM", "vc_StreamMsftExample.txt": "is not output of STREAM",
    "vc_Results_FIO_Error_2.txt": "no whole fio result",
}  # fmt: skip


@pytest.mark.parametrize("path", [path for kind in OPTIONS for path in sorted((FOLDER / kind).glob("*"))], ids=lambda p: p.name)
def test_every_description_and_measurement_makes_a_machine_or_is_refused(path: Path, tmp_path: Path) -> None:
    kind = OPTIONS[path.parent.name]

    def made() -> Machine:
        is_layout = kind in ("hwloc", "topo")
        layouts = [read_layout(path, kind)] if is_layout else []
        figures = [] if is_layout else read_figures(path, kind)
        gpu = next((part for word, part in GPUS.items() if word in path.name), "")
        write_machine(machine_document(layouts, figures, gpu=gpu), "m", tmp_path / "m.yaml")
        return load_machine(str(tmp_path / "m.yaml"))

    if path.name in REFUSED:
        with pytest.raises(InputError, match=REFUSED[path.name]):
            made()
        assert not list(tmp_path.iterdir())
    else:
        assert made().tiers


def test_the_files_of_one_machine_together_give_back_what_they_measured(tmp_path: Path) -> None:
    layouts = [read_layout(FOLDER / "nvidia_smi_topo" / "stas_8xA100_nv12.txt", "topo")]
    figures = [
        *read_figures(FOLDER / "gpu_copy" / "sb_gpu_copy_bw.log", "copies"),
        *read_figures(FOLDER / "nccl_tests" / "sb_nccl_allreduce_8xA100.log", "nccl"),
        *read_figures(FOLDER / "mlc" / "sb_mlc_v3.9a_bandwidth_matrix.txt", "mlc"),
    ]
    write_machine(machine_document(layouts, figures), "m", tmp_path / "m.yaml")
    machine = load_machine(str(tmp_path / "m.yaml"))
    assert len(machine.gpus()) == 8
    assert machine.device("gpu0").part_name == "a100-40gb-sxm"
    assert machine.channels["cpu0.dram"].bandwidth_per_s == pytest.approx(82.76e9, rel=0.01)
    largest = max((f for f in figures if f.quantity == "collective"), key=lambda f: float(f.at["size_bytes"]))
    size = float(largest.at["size_bytes"])
    members = [(0, gpu) for gpu in machine.gpus()]
    flow = collective(machine, "all_reduce", size, members, 0)
    cost = max(cost / machine.channels[name].bandwidth_per_s for name, cost in flow.uses)
    assert flow.latency_s + flow.work_bytes * max(cost, 1.0 / flow.rate_cap) == pytest.approx(largest.value, rel=0.1)
