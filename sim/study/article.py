"""The article's claims: every scenario of a folder is run, its claim judged, and the page with the table written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.config import ScenarioFile, load_scenario
from sim.errors import Fault, InputError
from sim.experiment import run
from sim.metrics.claim import in_words, verdict_of_points

_HEAD = """# The article's claims, simulated

Every number of the article that this project starts from is a scenario under `scenarios/article/`. The verdicts are computed:
*reproduced* (within 15 %, or inside the claimed range), *conditional* (reproduced under the stated assumptions), *not
reproduced*. Nothing is tuned to make a claim true. Rewrite this page with `tiersim validate --article docs/article.md`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One claim with its verdict. `holds` are the sweep points for which it is true, of `num_points`."""

    file: ScenarioFile
    claim: Mapping[str, Any]
    holds: Sequence[Mapping[str, Any]]
    num_points: int

    @property
    def sort_key(self) -> tuple[str, str]:
        """By claim, then file."""
        return str(self.claim["id"]), self.file.name


def judge(paths: Iterable[Path]) -> list[Judged]:
    """Run every scenario that makes a claim; in the order of the claims' ids."""
    found = []
    for path in paths:
        file = load_scenario(str(path))
        if not file.claim:
            raise InputError(Fault(what="an article scenario without a claim", remedy="add a claim: block", file=str(path)))
        points = [run(scenario).point() for scenario in file.expand()]
        verdict = verdict_of_points(file.claim, points)
        found.append(Judged(file=file, claim=verdict, holds=verdict.pop("holds"), num_points=len(points)))
    return sorted(found, key=lambda item: item.sort_key)


def page(judged: Sequence[Judged]) -> str:
    """The Markdown page: a table, then what had to be assumed and when each claim holds."""
    lines = [_HEAD, "| claim | stated | simulated | verdict | scenario |", "|---|---|---|---|---|"]
    for item in judged:
        claim = item.claim
        name = f"[`{item.file.name}`](../scenarios/article/{Path(item.file.document.file).name})"
        simulated = _cell(in_words(claim["simulated"], item.file.claim))
        lines.append(f"| {claim['id']} | {_cell(claim['stated'])} | {simulated} | {claim['verdict']} | {name} |")
    for item in judged:
        lines += ["", f"## {item.claim['id']}: {item.file.name}", "", *_details(item)]
    return "\n".join(lines) + "\n"


def _details(item: Judged) -> list[str]:
    question = " ".join(item.file.question.split())
    lines = [question] if question else []
    assumed = [*item.file.assumptions, *(str(text) for text in item.file.claim.get("assumptions", ()))]  # type: ignore[attr-defined]
    if assumed:
        lines += ["", "Assumed:", "", *(f"- {' '.join(text.split())}" for text in dict.fromkeys(assumed))]
    if item.num_points > 1:
        lines += ["", f"Holds for {len(item.holds)} of {item.num_points} points" + _where(item.holds, item.num_points)]
    if item.claim.get("reason"):
        lines += ["", str(item.claim["reason"])]
    return lines


def _where(holds: Sequence[Mapping[str, Any]], num_points: int) -> str:
    if not holds or len(holds) == num_points:
        return "."
    return ": " + "; ".join(", ".join(f"{key.rsplit('.', 1)[-1]} {value}" for key, value in p.items()) for p in holds) + "."


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")
