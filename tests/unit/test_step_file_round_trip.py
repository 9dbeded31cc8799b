"""The trace file: exact both ways, and every fault is named with its line."""

import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.interchange.step_file import read_step, write_step
from sim.records import Kernel, Kind, RankClass, Residency, Step, StepOperation, TensorClass


def step(*operations: StepOperation) -> Step:
    return Step(name="s", operations=operations, rank_classes=(RankClass(name="rank0", num_ranks=1),))


def operation(name: str, sequence: int, after: tuple[str, ...] = (), stream: str = "rank0.compute") -> StepOperation:
    return StepOperation(id=name, kind=Kind.COMPUTE, stream=stream, sequence=sequence, after=after)


amounts = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
kernels = st.builds(Kernel, kind=st.just("gemm"), flops=amounts, read_bytes=amounts, recorded_s=amounts, name=st.text())
residencies = st.builds(Residency, tensor_class=st.sampled_from(TensorClass), size_bytes=amounts)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    count = draw(st.integers(0, 8))
    operations = [
            StepOperation(
                id=f"op{i}", kind=draw(st.sampled_from(Kind)), stream=f"rank0.{draw(st.sampled_from(['h2d', 'cpu']))}",
                sequence=i, name=draw(st.text()), size_bytes=draw(amounts), fixed_s=draw(amounts),
                after=tuple(f"op{j}" for j in draw(st.sets(st.integers(0, i - 1)))) if i else (),
                kernels=tuple(draw(st.lists(kernels, max_size=2))),
                allocates=tuple(draw(st.lists(residencies, max_size=2))),
            )
        for i in range(count)
    ]  # fmt: skip
    return Step(
        name=draw(st.text()), operations=tuple(operations), rank_classes=(RankClass(name="rank0", num_ranks=3),),
        model_flops=draw(amounts), notes=tuple(draw(st.lists(st.text(), max_size=2))), group_sizes={"data": 3},
    )  # fmt: skip


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps())
def test_a_step_survives_the_file_exactly(tmp_path: Path, written: Step) -> None:
    write_step(written, tmp_path / "a.jsonl")
    assert read_step(tmp_path / "a.jsonl") == written


def test_gzip_and_shuffled_lines_read_the_same(tmp_path: Path) -> None:
    written = step(operation("a", 0), operation("b", 1, ("a",)), operation("c", 0, ("b",), "rank0.cpu"))
    write_step(written, tmp_path / "a.jsonl")
    header, *rest = (tmp_path / "a.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "b.jsonl").write_bytes(gzip.compress(header + b"".join(reversed(rest))))
    assert set(read_step(tmp_path / "b.jsonl").operations) == set(written.operations)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ((operation("a", 0), operation("a", 1)), "duplicate id 'a'"),
        ((operation("a", 0), operation("b", 0)), "'b' has sequence 0 of stream 'rank0.compute', as 'a' has"),
        ((operation("a", 0, ("x",)),), "'a' waits for unknown operation 'x'"),
        ((operation("a", 0, ("a",)),), "circle: a -> a"),
        ((operation("a", 0, ("b",)), operation("b", 0, ("a",), "rank0.cpu")), "circle"),
        # the stream order is a dependency too: b runs after a on its stream, and a waits for b
        ((operation("a", 0, ("b",)), operation("b", 1)), "circle"),
        ((operation("a", 0, stream="rank7.cpu"),), "rank class is not in the header"),
    ],
)
def test_structural_faults_are_refused_when_written_and_when_read(
    tmp_path: Path, operations: tuple[StepOperation, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        write_step(step(*operations), tmp_path / "a.jsonl")
    assert not (tmp_path / "a.jsonl").exists()
    write_step(step(), tmp_path / "a.jsonl")
    header = json.loads((tmp_path / "a.jsonl").read_text()) | {"num_operations": len(operations)}
    lines = [json.dumps(header)]
    for op in operations:
        raw = {"id": op.id, "kind": "compute", "stream": op.stream, "sequence": op.sequence, "after": op.after}
        lines.append(json.dumps(raw))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=message) as caught:
        read_step(tmp_path / "a.jsonl")
    assert caught.value.faults[0].line >= 2


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf])
def test_amounts_are_finite_and_not_negative(tmp_path: Path, bad: float) -> None:
    wrong = StepOperation(id="a", kind=Kind.TRANSFER, stream="rank0.h2d", sequence=0, size_bytes=bad)
    with pytest.raises(InputError, match="'a' has size_bytes"):
        write_step(step(wrong), tmp_path / "a.jsonl")


def test_zero_amount_is_fine(tmp_path: Path) -> None:
    write_step(step(StepOperation(id="a", kind=Kind.TRANSFER, stream="rank0.h2d", sequence=0)), tmp_path / "a.jsonl")
    assert read_step(tmp_path / "a.jsonl").operations[0].size_bytes == 0


def test_damaged_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_step(step(operation("a", 0), operation("b", 1)), path)
    whole = path.read_text()
    header, first, second = whole.splitlines()
    cases = {
        whole[:-20]: "a.jsonl:3: not an operation",
        f"{header}\n{first}\n": "a.jsonl:1: holds 1 operations, its header promises 2",
        f"{header}\n{first}\n{second[:-1]}, \"size\": 3}}\n": "a.jsonl:3: .*unknown field `size`",
        f"{first}\n": "a.jsonl:1: not a tiersim trace file",
        whole.replace('"version":1', '"version":2'): "reads version 1",
        whole.replace("bytes, s", "bytes, us"): "units",
        "": "is empty",
    }  # fmt: skip
    for content, message in cases.items():
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            read_step(path)


def test_many_faults_are_counted_not_flooded(tmp_path: Path) -> None:
    operations = tuple(operation(f"o{i}", i, (f"missing{i}",)) for i in range(50))
    with pytest.raises(InputError) as caught:
        write_step(step(*operations), tmp_path / "a.jsonl")
    assert len(caught.value.faults) == 21
    assert "and 30 more faults" in str(caught.value)
