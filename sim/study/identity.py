"""What makes two points the same: hashes of resolved inputs, of the scenario file and all it reads, of the model.

A result's key is the hash of its resolved scenario and the model version. A plan's fingerprint is the hash of a
scenario file, the files that it names (and those that they name), and the model version: cheap to take, so a finished
study is recognised without resolving its points.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from sim.config.locate import data_folder
from sim.config.scenario_file import ScenarioFile
from sim.scenario import Job, Scenario
from sim.topology.machine import Machine

#: rooms whose code cannot change a result
_ROOMS_OUTSIDE_THE_MODEL = ("cli", "report", "study", "probe")
_DIGEST_BYTES = 16
_NAMED_FILE = re.compile(r"[^\s\"'\[\]{},]+\.(?:ya?ml|json|jsonl|csv)(?:\.gz)?\b")
_MAX_FILES = 1000


def digest(value: object) -> str:
    """Hash of plain data, structs, dataclasses and mappings; keys in any order hash the same."""
    return _hash(_encoder().encode(value))


@cache
def _encoder() -> msgspec.msgpack.Encoder:
    return msgspec.msgpack.Encoder(order="deterministic", enc_hook=_plain)


def _plain(value: Any) -> object:
    if isinstance(value, (Mapping, MappingProxyType)):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no stable encoding")


def _hash(*parts: bytes) -> str:
    state = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


@cache
def model_version() -> str:
    """Hash of the code and the built-in data that decide a result."""
    package = Path(__file__).parent.parent
    code = sorted(
        path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in (*_ROOMS_OUTSIDE_THE_MODEL, "_data")
    )
    return _hash(*(path.read_bytes() for path in code))


@cache
def _data_version() -> str:
    """Hash of the built-in machines and parts."""
    return _hash(*(path.read_bytes() for path in sorted((data_folder() / "topologies").rglob("*.yaml"))))


def result_key(scenario: Scenario) -> str:
    """Key of a resolved scenario's result. Its name, sweep parameters and question do not matter, nor how it is drawn."""
    return digest(
        (
            model_version(),
            _machine_digest(scenario.machine),
            [_job(job) for job in scenario.jobs],
            scenario.options,
            scenario.measured,
            scenario.claim,
        )
    )


def twin_key(scenario: Scenario) -> str:
    """Key of what a run takes: as :func:`result_key`, without what is only said about the result."""
    return digest((_machine_digest(scenario.machine), [_job(job) for job in scenario.jobs], scenario.options))


_machines: dict[int, tuple[Machine, str]] = {}


def _machine_digest(machine: Machine) -> str:
    """Digest of a machine, remembered while the same object is used point after point."""
    known = _machines.get(id(machine))
    if known is None or known[0] is not machine:
        if len(_machines) >= 64:
            _machines.clear()
        known = _machines[id(machine)] = (machine, digest(dataclasses.replace(machine)))  # without walked paths
    return known[1]


def _job(job: Job) -> tuple[object, str]:
    path = getattr(job.workload, "path", None)
    return job, _file_hash(Path(path)) if path else ""


def _file_hash(path: Path) -> str:
    return _hash(path.read_bytes()) if path.is_file() else ""


def plan_fingerprint(file: ScenarioFile) -> str:
    """Fingerprint of a scenario file: its data, every file it names however deep, built-in machines, model version."""
    own = Path(file.document.file)
    named = sorted(_named_files(own)) if own.is_file() else []
    contents = [str(path).encode() + b"\0" + path.read_bytes() for path in named if path != own.resolve()]
    return _hash(digest(file.document.data).encode(), model_version().encode(), _data_version().encode(), *contents)


def _named_files(start: Path) -> set[Path]:
    """`start` and all files whose names appear in it, or in the text files among them, next to the file that names them."""
    found: set[Path] = set()
    pending = [start.resolve()]
    while pending and len(found) < _MAX_FILES:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix in (".yaml", ".yml"):
            text = path.read_text(encoding="utf-8", errors="replace")
            for name in set(_NAMED_FILE.findall(text)):
                for folder in (path.parent, Path.cwd()):
                    candidate = (folder / name).resolve()
                    if candidate.is_file():
                        pending.append(candidate)
                        break
    return found
