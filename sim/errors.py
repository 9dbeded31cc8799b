"""Everything tiersim raises.

TiersimError
├── InputError          the user's file or argument is wrong             exit code 2
│   └── MachineError    the described machine cannot exist               exit code 2
├── MisfitError         the workload does not fit the machine            exit code 1
└── InternalError       an impossible result: a defect of the simulator  exit code 3
    ├── InvariantError  a replay broke conservation, bandwidth, capacity or order
    └── DeadlockError   nothing can run and something still waits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

#: faults that a message lists; a file pasted twice has one for each of its keys
_SHOWN = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with an input, where it is, and how to mend it."""

    what: str  # "unknown key 'batchsize'"
    remedy: str = ""  # "did you mean 'batch_size'?"
    path: str = ""  # "workload.training.batchsize"
    file: str = ""
    line: int = 0  # 1-based; 0 = unknown

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        head = ": ".join(part for part in (place, self.path) if part)
        text = f"{self.what}; {self.remedy}" if self.remedy else self.what
        return f"{head}: {text}" if head else text


class TiersimError(Exception):
    """Base of every error that tiersim raises on purpose."""

    exit_code = 3


class InputError(TiersimError):
    """The user's input is wrong; carries every fault found, not just the first."""

    exit_code = 2

    def __init__(self, faults: Sequence[Fault] | Fault | str) -> None:
        if isinstance(faults, str):
            faults = Fault(what=faults)
        self.faults: tuple[Fault, ...] = (faults,) if isinstance(faults, Fault) else tuple(faults)
        lines = [str(fault) for fault in self.faults[:_SHOWN]]
        if len(self.faults) > _SHOWN:
            lines.append(f"and {len(self.faults) - _SHOWN} more of the kind")
        super().__init__("\n".join(lines))


def of_source(error: InputError, source: str) -> InputError:
    """The same faults as found in the file that a document was made of, when that document is never written."""
    return InputError([replace(fault, file=source, line=0) for fault in error.faults])


class MachineError(InputError):
    """The machine described by the input cannot exist (lanes, links, speeds, over-commitment)."""


class MisfitError(TiersimError):
    """The workload needs more of a tier than it has and no policy answers."""

    exit_code = 1

    def __init__(self, message: str, *, tier: str = "", phase: str = "", shortfall_bytes: float = 0.0) -> None:
        self.tier = tier
        self.phase = phase
        self.shortfall_bytes = shortfall_bytes
        super().__init__(message)


class InternalError(TiersimError):
    """An impossible result: never printed as a number, always reported as a defect."""


class InvariantError(InternalError):
    """A replay violated conservation, bandwidth, capacity or order."""


class DeadlockError(InternalError):
    """Nothing is runnable while operations are pending; the message names the waits."""
