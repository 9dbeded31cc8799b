"""Short names of parameters, for columns and axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: first names that say nothing in a table
_PREFIXES = ("topology.", "workload.training.", "workload.inference.", "placement.")


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Path -> the shortest of its endings that tells it from the others; a device keeps its name (gpu1.link.lanes)."""
    paths = list(paths)
    return {path: _short(path, [other for other in paths if other != path]) for path in paths}


def _short(path: str, others: Sequence[str]) -> str:
    prefix = next((prefix for prefix in _PREFIXES if path.startswith(prefix)), "")
    rest = path.removeprefix(prefix)
    if prefix == "topology.":
        return rest
    words = rest.split(".")
    for count in range(1, len(words) + 1):
        ending = ".".join(words[-count:])
        if not any(other == ending or other.endswith(f".{ending}") for other in others):
            return ending.replace("_", " ")
    return path
