"""Where files are: built-in topologies, parts and scenarios by name, in a checkout or in an installed wheel."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from pathlib import Path

from sim.config.near_names import sharing
from sim.config.yaml_source import describe
from sim.errors import Fault, InputError

#: kind of built-in -> (folder, word in messages)
KINDS = {"topologies": "topology", "scenarios": "scenario"}


@cache
def data_folder() -> Path:
    """Folder that holds `topologies/` and `scenarios/`: the checkout's root, or `sim/_data` in a wheel."""
    package = Path(__file__).resolve().parent.parent
    packaged = package / "_data"
    return packaged if packaged.is_dir() else package.parent


@cache
def builtins(kind: str) -> dict[str, Path]:
    """Name -> file of every built-in of `kind` ("topologies" or "scenarios").

    A name is the file's stem; of two files with one stem (in different folders) the name is the path below the
    kind's folder. Part families (`topologies/parts/`) are not machines; tables of measurements (`scenarios/validation/`)
    and of users' reports (`scenarios/reports/`) and price overlays (`scenarios/examples/prices/`) are not scenarios.
    """
    folder = data_folder() / kind
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.yaml")):
        relative = path.relative_to(folder)
        if not {"parts", "validation", "reports", "prices"} & set(relative.parts[:-1]):
            found.setdefault(path.stem, []).append(path)
    names: dict[str, Path] = {}
    for stem, paths in found.items():
        for path in paths:
            names[stem if len(paths) == 1 else path.relative_to(folder).with_suffix("").as_posix()] = path
    return names


def _is_there(path: Path) -> bool:
    """Whether the file is there; a name that is too long for a file is of none."""
    try:
        return path.exists()
    except OSError:
        return False


def locate(name: str, kind: str, *, relative_to: str | Path | None = None) -> Path:
    """File of a built-in name, or the path itself when `name` looks like one (has a suffix or a separator).

    A relative path is looked up from the folder `relative_to` (of the file that names it), then from the working
    folder. Raises InputError for an unknown name, with suggestions.
    """
    if Path(name).suffix in (".yaml", ".yml", ".json", ".jsonl", ".gz") or name.startswith((".", "/", "~")):
        path = Path(name).expanduser()
        beside = Path(relative_to) / path if relative_to is not None else path
        return beside if _is_there(beside) else path
    names = builtins(kind)
    short = name.removeprefix(f"{kind}/")
    if short in names:
        return names[short]
    nested = data_folder() / kind / f"{short}.yaml"
    if ".." not in Path(short).parts and _is_there(nested):
        return nested
    word = KINDS.get(kind, kind)
    near = sharing(short, names) or get_close_matches(short, names, n=1, cutoff=0.5)
    remedy = (
        f"did you mean {' or '.join(map(repr, near))}?"
        if near
        else f"see `tiersim list {kind}`, or give a path that ends in .yaml"
    )
    raise InputError(Fault(what=f"unknown {word} {describe(name)}", remedy=remedy))
