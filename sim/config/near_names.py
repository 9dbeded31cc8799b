"""Which of several names a word probably means, where their spelling is far apart."""

from __future__ import annotations

import re
from collections.abc import Iterable


def plain(word: str) -> str:
    """The word in the form of our names: `RTX 4090` -> `rtx-4090`."""
    return re.sub(r"[^a-z0-9.]+", "-", word.lower()).strip("-")


def sharing(word: str, names: Iterable[str]) -> list[str]:
    """Names that share a model number with the word, those that share most words first: `nvidia-rtx-4090` -> `rtx-4090`."""
    tokens = set(plain(word).split("-"))
    numbers = {token for token in tokens if len(token) > 2 and re.search(r"\d", token) and not re.fullmatch(r"\d+gb?", token)}
    shared = {name: len(tokens & set(name.split("-"))) for name in names if numbers & set(name.split("-"))}
    most = max(shared.values(), default=0)
    return [name for name, count in shared.items() if count == most][:3]


def of_family(word: str, names: Iterable[str]) -> list[str]:
    """Names that begin with the same word, if they are few: `cxl-ddr5-256` -> the expanders and modules on CXL."""
    first = plain(word).split("-")[0]
    found = [name for name in names if name.split("-")[0] == first and "-" in plain(word)]
    return found if len(found) <= 12 else []
