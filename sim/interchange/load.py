"""Any trace file -> Step, by its content: our own, PyTorch profiler, PyTorch execution trace, Chakra."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sim.errors import Fault, InputError
from sim.interchange import chakra, kineto, pytorch_et, source, step_file
from sim.interchange.machines import readers
from sim.interchange.rules import Rule, applied
from sim.records import Step

_WRONG: tuple[tuple[str, str, str], ...] = (
    (r"(?s)\s*\{.{0,4000}?\"zero_optimization\"", "is a DeepSpeed configuration", "a trace is a recording of a run"),
    (r"(?s)\s*\{.{0,4000}?\"(?:architectures|model_type)\"", "is the config.json of a model",
     "name it as the model: workload: {training: {model: FILE}}"),
    (r"(?s).{0,4000}?(?:\"(?:remote|local)-mem-\w+\"|\"memory-type\"|\bnpus_count\b)", "is a configuration of ASTRA-sim",
     "describe the machine as a topology"),
    (r"(?ms).{0,4000}?^(?:workload|topology|devices|extends):", "is a scenario or a topology", "run it: tiersim run FILE"),
    # [time or -1, action, bytes, category] of each allocation
    (r"\s*\[\[-?\d+, ?\d, ?\d+, ?\d+\]", "is a memory timeline of the PyTorch profiler", "give the trace of the same run"),
)  # fmt: skip


class Asked(msgspec.Struct, frozen=True):
    """Options of an import; see `load_trace` and `open_trace`."""

    step: int | None = None
    rules: tuple[Rule, ...] = ()
    num_ranks: int = 0
    element_bytes: float = 1.0


class Recorded(msgspec.Struct):
    """A trace that is read and not yet cut: `readings` of each rank (PyTorch profiler), or the only `whole` step."""

    readings: list[kineto.Reading] = []
    whole: Step | None = None
    source_part: str = ""

    @property
    def num_steps(self) -> int:
        """Steps that every rank recorded."""
        return min(len(kineto.steps_of(reading)) for reading in self.readings) if self.readings else 1

    def of_rank(self, position: int) -> Step:
        """The step of median duration of one rank alone, which stands for the whole job."""
        return kineto.step_from([self.readings[position]])

    def start_delays_s(self) -> list[float]:
        """How much later than the first rank each rank started the step of median duration."""
        return kineto.start_delays_s(self.readings)

    def step(self, number: int | None = None) -> Step:
        """One step by its number from 0; default: the one of median duration. Raises InputError when there is none such."""
        step = kineto.step_from(self.readings, number) if self.whole is None else self.whole
        return msgspec.structs.replace(step, source_part=self.source_part) if self.source_part else step


def load_trace(
    paths: str | Path | Sequence[str | Path],
    *,
    step: int | None = None,
    rules: Sequence[Rule] = (),
    source_part: str = "",
    num_ranks: int = 0,
    element_bytes: float = 1.0,
) -> Step:
    """Read one step of a trace, or of the traces of several ranks of one job; see `open_trace`.

    `step` picks a recorded step (from 0; default: the one of median duration).
    """
    asked = Asked(step, tuple(rules), num_ranks, element_bytes)
    return _open(paths, asked, source_part).step(step)


def open_trace(paths: str | Path | Sequence[str | Path], *, rules: Sequence[Rule] = (), source_part: str = "") -> Recorded:
    """Read one trace, or the traces of several ranks of one job (also as one tar archive), for several steps of it.

    `rules` name the tensor classes of copies; `source_part` overrides the GPU that the recording names; `num_ranks`: ranks
    of the job where the file does not say; `element_bytes`: bytes per element of Chakra files that count elements. Raises
    InputError for everything that is no trace.
    """
    return _open(paths, Asked(rules=tuple(rules)), source_part)


def _open(paths: str | Path | Sequence[str | Path], asked: Asked, source_part: str) -> Recorded:
    listed = [paths] if isinstance(paths, str | Path) else list(paths)
    if not listed:
        raise InputError(Fault(what="no trace given", remedy="name a file"))
    found = [item for path in listed for item in source.members(path)]
    if not found:
        raise InputError(Fault(what="the archive holds no file", file=str(listed[0])))
    kinds = {kind_of(content, name) for name, content in found}
    if kinds == {"groups"}:
        what = "holds process groups only, the side file of a Chakra trace"
        raise InputError(Fault(what=what, remedy="give the .et files of the ranks with it", file=found[0][0]))
    if kinds == {"chakra", "groups"}:
        kinds = {"chakra"}
    if len(kinds) > 1:
        raise InputError(
            Fault(what=f"files of different kinds: {', '.join(sorted(kinds))}", remedy="give the ranks of one recording")
        )
    (kind,) = kinds
    if kind == "kineto":
        _refuse_element_bytes(asked, found[0][0])
        readings = [kineto.read_rank(content, name, asked.rules, asked.num_ranks) for name, content in found]
        return Recorded(readings=readings, source_part=source_part)
    if asked.step:
        what = f"there is no step {asked.step}: such a trace holds one step"
        raise InputError(Fault(what=what, remedy="leave out --step", file=found[0][0]))
    if kind != "chakra":
        _refuse_element_bytes(asked, found[0][0])
    return Recorded(whole=applied(_READERS[kind](found, asked), asked.rules), source_part=source_part)


def _refuse_element_bytes(asked: Asked, file: str) -> None:
    if asked.element_bytes != 1.0:
        what = "only Chakra files count elements: this recording has bytes"
        raise InputError(Fault(what=what, remedy="leave out element_bytes", file=file))


def kind_of(content: bytes, file: str) -> str:
    """Kind of a trace by its content: step kineto pytorch-et chakra groups. Raises InputError that says what it is instead."""
    if content.lstrip()[:200].startswith(b"{") and f'"{step_file.FORMAT}"'.encode() in content[:4096]:
        return "step"
    if pytorch_et.looks_like(content):
        return "pytorch-et"
    if kineto.looks_like(content):
        return "kineto"
    if b'"workload_graph"' in content[:4096] or chakra.looks_like(content):
        return "chakra"
    if _groups(content) is not None:
        return "groups"
    head = content[:8192].decode("utf-8-sig", errors="replace")
    if measured := readers.kind_of(head):
        what = f"is output of {readers.READERS[measured].tool}, not a trace"
        remedy = f"it describes a machine: tiersim import machine --{measured} FILE"
        raise InputError(Fault(what=what, remedy=remedy, file=file))
    if re.match(r"\s*<(?:!doctype html|html)\b", head, re.I):
        raise InputError(Fault(what="is an HTML page, not a trace", remedy="download the raw file", file=file))
    if head.lstrip().startswith("<"):
        raise InputError(Fault(what="is XML, not a trace", remedy="expected a recording of a run", file=file))
    for pattern, what, remedy in _WRONG:
        if re.match(pattern, head):
            raise InputError(Fault(what=f"{what}, not a trace", remedy=remedy, file=file))
    remedy = "expected a tiersim trace, a PyTorch profiler trace, a PyTorch execution trace or a Chakra file"
    raise InputError(Fault(what="is no trace of a known kind", remedy=remedy, file=file))


def _groups(content: bytes) -> dict[str, list[int]] | None:
    """The side file of a Chakra trace: process group name -> ranks."""
    if content.lstrip()[:1] != b"{" or len(content) > 2**24:
        return None
    try:
        return msgspec.json.decode(content, type=dict[str, list[int]]) or None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _step(found: list[tuple[str, bytes]], asked: Asked) -> Step:
    if len(found) > 1 or asked != Asked():
        what = "a tiersim trace holds one step of all ranks"
        raise InputError(Fault(what=what, remedy="no further file and no option applies", file=found[0][0]))
    return step_file.parse_step(found[0][1], found[0][0])


def _pytorch_et(found: list[tuple[str, bytes]], asked: Asked) -> Step:
    return pytorch_et.step_from(found, num_ranks=asked.num_ranks)


def _chakra(found: list[tuple[str, bytes]], asked: Asked) -> Step:
    groups: dict[str, list[int]] = {}
    traces = []
    for name, content in found:
        side = _groups(content)
        if side is None:
            traces.append(chakra.read_trace(content, name))
        else:
            groups |= side
    return chakra.step_from(traces, groups=groups, element_bytes=asked.element_bytes, num_ranks=asked.num_ranks)


_READERS = {"step": _step, "pytorch-et": _pytorch_et, "chakra": _chakra}
