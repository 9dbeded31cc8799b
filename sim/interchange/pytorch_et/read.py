"""PyTorch execution traces (JSON) -> Step."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import Fault, InputError
from sim.interchange.kineto.events import clean_name
from sim.interchange.pytorch_et.nodes import read_document
from sim.interchange.pytorch_et.operators import Operators
from sim.interchange.pytorch_et.profiled import Profiled, is_profiled
from sim.records import Kind, RankClass, Step


def step_from(found: Sequence[tuple[str, bytes]], *, num_ranks: int = 0) -> Step:
    """One rank's execution trace as a step; it stands for all `num_ranks` (default: what the file says, else the files).

    Of several files the first by name is read. Raises InputError for other JSON and for traces without GPU operators.
    """
    file, content = min(found)
    document = read_document(content, file)
    has_times = is_profiled(document)
    reader = (Profiled if has_times else Operators)(document, num_ranks or (len(found) if len(found) > 1 else 0))
    operations = reader.operations()
    if not any(op.kernels or op.kind is Kind.COLLECTIVE for op in operations):
        what = "; ".join(["has no operator on GPU tensors", *document.notes])
        raise InputError(Fault(what=what, remedy="record an iteration that runs on a GPU", file=file))
    durations = "as recorded" if has_times else "not recorded, kernels are timed by the kernel law"
    notes = [*document.notes, f"schema {clean_name(document.schema)}: durations are {durations}"]
    if reader.world > 1:
        notes.append(f"one rank's file stands for all {reader.world} ranks")
    elif any(op.kind is Kind.COLLECTIVE for op in operations):
        notes.append("the number of ranks is not known: collectives cost nothing; give --ranks N")
    notes += [f"{what}: {count}" for what, count in sorted(reader.counts.items())]
    return Step(
        name=file.rsplit("/", 1)[-1], operations=tuple(operations),
        rank_classes=(RankClass(name="rank0", num_ranks=reader.world),), group_sizes=reader.groups.sizes,
        source_step_s=reader.recorded_s if isinstance(reader, Profiled) else 0.0, origin="pytorch-et", notes=tuple(notes),
    )  # fmt: skip
