"""Tables of measurements expand to rows; every fault of a file is reported with its line."""

from pathlib import Path

import pytest

from sim.config import parse_yaml
from sim.errors import InputError
from sim.study.row_files import read_rows
from sim.study.validation_rows import rows_of

TABLE = """
publication: some-paper
document: "Some paper, 2026"
scenario: {topology: box, workload: {training: {precision: bf16, batch_size: 1}}}
tables:
  - id: t1
    family: training_no_offload
    locate: "table 1"
    sweep: batch
    is_fast: [b4]
    scenario: {workload: {training: {batch_size: 2}}}
    columns: [id, workload.training.batch_size, "topology.set.cpu0.memory.capacity [GiB]",
              "= step_time [ms]", "= gpu_peak [GiB]", missing]
    rows:
      - [b4, 4, 64, 250, 10, null]
      - [b2, null, null, 200, null, "host memory"]
"""


def rows(text: str = TABLE):
    return rows_of(parse_yaml(text, "t.yaml"))


def test_cells_become_inputs_and_measured_values():
    first, peak, second = rows()
    assert first.id == "some-paper/t1/b4.step_time"
    assert first.measured == pytest.approx(0.25)
    assert first.inputs["workload"]["training"] == {"precision": "bf16", "batch_size": 4}
    assert first.inputs["topology"] == {"base": "box", "set": {"cpu0.memory.capacity": "64 GiB"}}
    assert peak.measured == 10 * 2**30
    assert peak.run_key == first.run_key
    assert (first.family, peak.family) == ("training_no_offload", "footprint_gpu")
    assert second.inputs["workload"]["training"]["batch_size"] == 2  # the table's block over the file's
    assert second.missing == "host memory"
    assert second.run_key != first.run_key
    assert (first.citation, first.sweep) == ("Some paper, 2026; table 1", "some-paper/t1/batch.step_time")
    assert [row.is_fast for row in (first, peak, second)] == [True, True, False]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("training_no_offload", "training", "unknown family 'training'"),
        ("250, 10, null", "250, null", "expected 6 cells"),
        ("[ms]", "[parsec]", "known unit"),
        ("250, 10", "-250, 10", "must be positive"),
        ("sweep: batch", "swep: batch", "unknown key 'swep'"),
        ("is_fast: [b4]", "bench: {}", "one of 'scenario' and 'bench'"),
        ("publication: some-paper", "document2: x", "publication"),
        ('"= step_time [ms]"', '"= step time"', "unreadable column"),
    ],
)
def test_a_faulty_table_is_refused_with_its_line(old, new, message):
    with pytest.raises(InputError, match=message) as caught:
        rows(TABLE.replace(old, new))
    assert all(fault.file == "t.yaml" and fault.line > 0 for fault in caught.value.faults)


def test_two_rows_with_one_id_are_refused(tmp_path: Path):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(TABLE)
    with pytest.raises(InputError, match=r"two rows have the id 'some-paper/t1/b4\.step_time'"):
        read_rows([tmp_path])


def test_a_folder_without_tables_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"no \.yaml file"):
        read_rows([tmp_path])
