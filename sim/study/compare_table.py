"""A comparison as rows: one metric per row, one candidate per column; the same for terminal, CSV, Markdown and HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from sim.study.compare import Candidate, Comparison
from sim.units import format_bytes, format_seconds

Cell = Callable[[Candidate], str]


def comparison_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """(metric, baseline, others...); rows that no candidate has a value for are left out."""
    verdicts = {id(difference.candidate): difference.verdict for difference in comparison.differences}
    bases = {id(difference.candidate): difference.baseline for difference in comparison.differences if comparison.is_paired}
    cells: list[tuple[str, Cell]] = [
        ("fits", lambda c: "yes" if c.fits else "no"),
        ("step time", lambda c: _seconds(c.point.get("step_time_s"))),
        ("time to first token", lambda c: _seconds(c.point.get("time_to_first_token_s"))),
        ("time per output token", lambda c: _seconds(c.point.get("time_per_output_token_s"))),
        ("if it fitted", lambda c: _seconds(c.point.get("step_time_if_it_fitted_s"))),
        ("its baseline", lambda c: _base(bases.get(id(c)))),
        ("against the baseline", lambda c: verdicts.get(id(c), "baseline")),
        ("throughput", lambda c: _number(c.point.get("tokens_per_s"), "tokens/s")),
        ("MFU", lambda c: _percent(c.point.get("mfu"))),
        ("offload penalty", lambda c: _number(c.point.get("offload_penalty"), "x")),
        ("binds", lambda c: str(c.point.get("bound_by") or "")),
        *[(f"memory {tier}", _tier(tier)) for tier in _tiers(comparison.candidates)],
        ("power (rated)", lambda c: f"{c.power_w:,.0f} W" if c.power_w else ""),
        ("duration", lambda c: _seconds(c.budget.duration_s)),
        ("useful throughput", lambda c: _number(c.budget.useful_tokens_per_s, "tokens/s")),
        ("energy (at most)", lambda c: _number(_kwh(c), "kWh")),
        ("machine", lambda c: _number(c.budget.purchase, c.budget.currency)),
        ("without a price", lambda c: ", ".join(c.budget.unpriced)),
        ("rent", lambda c: _number(c.budget.rent, c.budget.currency)),
        ("electricity", lambda c: _number(c.budget.electricity, c.budget.currency)),
        ("tokens/s per W", lambda c: _ratio(c.point.get("tokens_per_s"), c.power_w)),
    ]
    rows = [(name, *(cell(candidate) for candidate in comparison.candidates)) for name, cell in cells]
    return [row for row in rows if any(row[1:])]


def heads(comparison: Comparison) -> tuple[str, ...]:
    """Names of the columns."""
    return ("", *(candidate.name for candidate in comparison.candidates))


def to_markdown(comparison: Comparison) -> str:
    """A Markdown table; bars in names are escaped."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    columns = heads(comparison)
    rule = line(["---", *["---:"] * (len(columns) - 1)])
    return "\n".join([line(columns), rule, *(line(row) for row in comparison_rows(comparison))]) + "\n"


def to_csv(comparison: Comparison) -> str:
    """The numbers themselves, SI, one row per candidate."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    keys = ("fits", "step_time_s", "time_per_output_token_s", "tokens_per_s", "mfu", "offload_penalty", "bound_by")
    tiers = _tiers(comparison.candidates)
    writer.writerow(
        ["name", *keys, "ratio", "ratio_error", "power_w", *(f"tiers.{tier}.peak_bytes" for tier in tiers), *_BUDGET]
    )
    ratios = {id(difference.candidate): (difference.ratio, difference.ratio_error) for difference in comparison.differences}
    for candidate in comparison.candidates:
        budget = candidate.budget.to_json()
        peaks = [candidate.point.get("tiers", {}).get(tier, {}).get("peak_bytes") for tier in tiers]
        row = [
            candidate.name, *(candidate.point.get(key) for key in keys), *ratios.get(id(candidate), (1.0, 0.0)),
            candidate.power_w or None, *peaks, *(budget[key] for key in _BUDGET),
        ]  # fmt: skip
        writer.writerow(["" if value is None else value for value in row])
    return buffer.getvalue()


_BUDGET = ("num_steps", "duration_s", "energy_kwh", "currency", "purchase", "rent", "electricity")


def _tiers(candidates: Sequence[Candidate]) -> list[str]:
    """Tiers that hold something in any candidate."""
    return list(
        dict.fromkeys(
            name for candidate in candidates for name, tier in candidate.point.get("tiers", {}).items() if tier["peak_bytes"]
        )
    )


def _tier(name: str) -> Cell:
    def cell(candidate: Candidate) -> str:
        tier = candidate.point.get("tiers", {}).get(name)
        if not tier or not tier["peak_bytes"]:
            return ""
        capacity = tier["capacity_bytes"]
        return (
            f"{format_bytes(tier['peak_bytes'])} of {format_bytes(capacity)}" if capacity else format_bytes(tier["peak_bytes"])
        )

    return cell


def _seconds(value: float | None) -> str:
    return "" if value is None else format_seconds(value)


def _base(baseline: Candidate | None) -> str:
    """Time of a candidate's own baseline."""
    if baseline is None:
        return ""
    return f"{_seconds(baseline.seconds)}{'' if baseline.fits else ' (does not fit)'}" if baseline.seconds > 0 else "unknown"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{_readable(value)} {unit}".strip()


def _readable(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _ratio(value: float | None, per: float) -> str:
    return "" if value is None or not per else f"{value / per:.3g}"


def _kwh(candidate: Candidate) -> float | None:
    return candidate.budget.energy_j / 3.6e6 if candidate.budget.energy_j is not None else None
