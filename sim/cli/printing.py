"""How a result looks in a terminal: verdict, times, tables. Everything goes to standard output."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sim.cli.explanation import print_explanation
from sim.cli.terminal import grouped, plain_table
from sim.config.measured_block import si_per
from sim.units import format_bandwidth, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from sim.experiment import Result
    from sim.study.budget import Budget
    from sim.study.measured import Beside

_MAX_CHANNELS = 12
_INDEX = re.compile(r"\d+")


def print_result(
    result: Result, out: Console, *, budget: Budget | None = None, measured: Sequence[Beside] = (), is_explained: bool = False
) -> None:
    """Everything about one run, in the order in which people ask; `budget` where the scenario has a data set or prices."""
    scenario = result.scenario
    out.print(Text.assemble((scenario.name, "bold"), "  ", _verdict(result)))
    if scenario.question:
        out.print(Text(scenario.question.split("\n\n")[0].replace("\n", " "), style="italic"))
    out.print()
    if _tells_memory(result):
        out.print(tier_table(result))
    else:
        out.print("Memory: not known (a recording tells what moves, not what is held)")
    out.print()
    _print_times(result, out)
    for item in measured:
        out.print(Text(measured_words(item)))
    if budget is not None:
        out.print()
        out.print(budget_table(budget))
    if result.jobs:
        out.print()
        out.print(job_table(result))
    if result.pools:
        out.print()
        out.print(pool_table(result))
        for line in _waits(result):
            out.print(line)
    out.print()
    title = "Where the answer's time goes" if result.inference else "Where the step goes"
    out.print(breakdown_table(result.summary.breakdown_s, title))
    out.print()
    out.print(channel_table(result))
    out.print(
        Text("carried by memories and drives: a written byte counts as the bytes that could be read meanwhile", style="dim")
    )
    if is_explained:
        out.print()
        print_explanation(result, out)
    for title, notes in (
        ("Assumed", result.assumptions),
        ("Warnings", result.warnings),
        ("Shown", (result.shown,) if result.shown else ()),
    ):
        if notes:
            out.print()
            out.print(Text(title, style="bold"))
            for note in grouped(notes):
                out.print(Text(f"- {note}"))


def _tells_memory(result: Result) -> bool:
    """Whether anything is known of what tiers hold: recordings tell what moves only."""
    return any(tier.peak_bytes > 0 for tier in result.summary.tiers.values())


def _verdict(result: Result) -> Text:
    if result.fits and not _tells_memory(result):
        return Text("replayed", style="bold")
    return Text("fits", style="bold green") if result.fits else Text("does not fit", style="bold red")


def _print_times(result: Result, out: Console) -> None:
    summary, times = result.summary, result.inference
    if not result.fits:
        out.print(Text(f"Does not fit: {result.reason}", style="red"))
        out.print(Text("With more memory, and all else equal:", style="dim"))
    seconds = summary.step_time_s
    band = result.band.around(seconds)
    low, high = format_seconds(float(band["low_s"])), format_seconds(float(band["high_s"]))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    if times:
        table.add_row("Time to first token", format_seconds(times.time_to_first_token_s))
        table.add_row("Time per output token", format_seconds(times.time_per_output_token_s))
        table.add_row("Whole answer", f"{format_seconds(seconds)}  ({low} to {high}; {band['basis']})")
        table.add_row("Throughput", f"{format_rate(times.tokens_per_s)} tokens/s")
    else:
        name = "All jobs end after" if result.jobs else "Step time"
        table.add_row(name, f"{format_seconds(seconds)}  ({low} to {high}; {band['basis']})")
        if result.step.num_tokens:  # a recording does not say how many
            table.add_row("Throughput", f"{format_rate(summary.tokens_per_s)} tokens/s")
        if result.step.model_flops:
            table.add_row("MFU", f"{100 * summary.mfu:.1f} %")
    table.add_row("Offload penalty", _penalty(result))
    table.add_row("Binds", _binding(result))
    claim = result.point().get("claim")
    if claim:
        from sim.metrics.claim import in_words

        simulated = in_words(claim["simulated"], result.scenario.claim)
        table.add_row(f"Claim {claim['id']}", f"{claim['verdict']}: stated {claim['stated']!r}, simulated {simulated}")
    out.print(table)


def measured_words(item: Beside) -> str:
    """``Measured step time 11.49 s: predicted 10.65 s, -7.3 % (source)``."""
    entry = item.entry
    scale = si_per(entry.unit) or 1.0
    measured, predicted = (f"{value / scale:.4g} {entry.unit}".rstrip() for value in (entry.value, item.predicted))
    at = "".join(f" at {key} {value}" for key, value in entry.at.items())
    name = entry.metric.replace("_", " ") + at
    return f"Measured {name} {measured}: predicted {predicted}, {100 * item.error:+.1f} % ({entry.source})"


def _penalty(result: Result) -> str:
    if result.fastest is None and not result.jobs:
        return f"none: {result.penalty_base}"
    return f"{result.offload_penalty:.3g} x  (against {result.penalty_base})"


def _binding(result: Result) -> str:
    summary = result.summary
    if summary.bound_by == "none":
        return "no single resource (none owns more than 30 % of the critical path)"
    share = summary.owners_s[summary.bound_by] / summary.step_time_s
    name = "software overhead" if summary.bound_by == "overhead" else summary.bound_by
    return f"{name}  ({100 * share:.0f} % of the critical path)"


_VERDICTS = {"fits": ("fits", "green"), "tight": ("tight", "yellow"), "does_not_fit": ("does not fit", "red")}


def tier_table(result: Result) -> Table:
    """Peak against capacity for every tier that holds something, over the whole life of the job."""
    from sim.placement.capacity import verdict

    table = plain_table("Memory tier", "peak", "capacity", "used", "in phase", "verdict")
    rows = []
    for name, tier in sorted(result.summary.tiers.items(), key=lambda item: _natural(item[0])):
        if tier.peak_bytes > 0:
            sizes = (format_bytes(tier.peak_bytes), format_bytes(tier.capacity_bytes), f"{100 * tier.share:.1f} %")
            judged = verdict(tier.peak_bytes, tier.capacity_bytes)
            rows.append((name, tier.multiplicity, (*sizes, tier.peak_phase.replace("_", " "), judged)))
    for name, cells in _merged(rows):
        words, style = _VERDICTS[cells[-1]]
        table.add_row(name, *cells[:-1], Text(words, style=style))
    return table


def _natural(name: str) -> list[tuple[int, str]]:
    """Key that puts node4 before node12."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _merged(rows: Sequence[tuple[str, int, tuple[str, ...]]]) -> list[tuple[str, tuple[str, ...]]]:
    """Rows (name, how many, cells) that differ in the numbers of their names only, as one: ``gpu0.hbm (x8)``."""
    groups: dict[tuple[str, tuple[str, ...]], tuple[str, int]] = {}
    for name, multiplicity, cells in rows:
        key = (_INDEX.sub("", name), cells)
        first, count = groups.get(key, (name, 0))
        groups[key] = (first, count + multiplicity)
    return [(name if count == 1 else f"{name} (x{count})", key[1]) for key, (name, count) in groups.items()]


def job_table(result: Result) -> Table:
    """One row per job of a scenario with several: its time beside the others, and against running alone."""
    has_life = any(len(job.steps_s) > 1 for job in result.jobs)
    lives = ("steps", "first", "slowest") if has_life else ()
    table = plain_table("Job", "host", "verdict", *lives, "time per step" if has_life else "time", "tokens/s", "against alone")
    for job in result.jobs:
        words, style = _VERDICTS["fits" if job.fits else "does_not_fit"]
        seconds, tokens = format_seconds(job.summary.step_time_s), format_rate(job.summary.tokens_per_s)
        name, host = job.scenario.job.name, job.scenario.job.host or job.scenario.machine.name
        life = (str(len(job.steps_s)), *(format_seconds(value) for value in (job.steps_s[0], max(job.steps_s))))
        shown = life if has_life else ()
        table.add_row(name, host, Text(words, style=style), *shown, seconds, tokens, f"{job.contention:.3g} x")
    return table


def pool_table(result: Result) -> Table:
    """One row per pool that is divided among hosts: what they hold at once, against the sum of their own peaks."""
    table = plain_table("Pool", "capacity", "held at once", "sum of hosts' peaks", "saved", "grants", "taken back")
    for name, pool in result.pools.items():
        own = pool.own_peaks_bytes
        saved = f"{100 * (1 - pool.peak_bytes / own):.0f} %" if own else "-"
        sizes = (format_bytes(pool.capacity_bytes), format_bytes(pool.peak_bytes), format_bytes(own))
        table.add_row(name, *sizes, saved, str(pool.num_grants), str(pool.num_releases))
    return table


def _waits(result: Result) -> list[str]:
    """What each host's loads from a pool take beside the neighbours that fill a port on the way, where they wait at all."""
    return [
        f"a load of {job.scenario.job.host} from {name} takes {format_seconds(row.beside_s)} while the update of "
        f"{', '.join(row.neighbours)} runs ({format_seconds(row.idle_s)} alone)"
        for job in result.jobs
        for name, row in job.pool_latency.items()
        if row.beside_s > row.idle_s
    ]


def budget_table(budget: Budget) -> Table:
    """What the whole job takes: hours and useful tokens of its data set, energy at rated power, money by the overlay."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    if budget.num_steps is not None and budget.duration_s is not None:
        table.add_row("Whole data set", f"{format_seconds(budget.duration_s)} for {budget.num_steps:,} steps")
    if budget.useful_tokens_per_s is not None:
        table.add_row("Useful tokens", f"{format_rate(budget.useful_tokens_per_s)} tokens/s (without padding)")
    if budget.energy_j is not None:
        table.add_row(
            "Energy", f"at most {budget.energy_j / 3.6e6:,.4g} kWh (every device at its rated power, {budget.power_w:,.0f} W)"
        )
    elif budget.num_steps is not None:
        table.add_row("Energy", "not known: a CPU or GPU of this machine states no rated power")
    for label, money in (("Purchase", budget.purchase), ("Rent", budget.rent), ("Electricity", budget.electricity)):
        if money is not None:
            table.add_row(label, f"{money:,.2f} {budget.currency}")
    return table


def breakdown_table(parts: Mapping[str, float], title: str) -> Table:
    """Seconds of the slowest rank by what they went into, with a bar."""
    table = plain_table(title, "time", "share")
    table.add_column("", justify="left")
    total = sum(parts.values())
    for key, value in parts.items():
        if value > 1e-9 * total:  # below it, rounding of sums
            bar = Text("█" * max(1, round(30 * value / total)), style="blue")
            table.add_row(key.replace("_", " "), format_seconds(value), f"{100 * value / total:.1f} %", bar)
    return table


def channel_table(result: Result) -> Table:
    """The busiest channels: bandwidth, bytes carried, mean utilisation, share of the step at full rate."""
    table = plain_table("Channel", "bandwidth", "carried", "utilisation", "at its limit")
    uses = sorted(result.summary.channels.items(), key=lambda item: (-item[1].utilisation, item[0]))
    rows = []
    for name, use in uses:
        if use.bytes > 0:
            sizes = (format_bandwidth(use.bandwidth_bytes_per_s), format_bytes(use.bytes))
            rows.append((name, use.multiplicity, (*sizes, f"{100 * use.utilisation:.1f} %", f"{100 * use.saturated:.1f} %")))
    merged = _merged(rows)
    for name, cells in merged[:_MAX_CHANNELS]:
        table.add_row(name, *cells)
    if len(merged) > _MAX_CHANNELS:
        table.add_row(f"and {len(merged) - _MAX_CHANNELS} quieter ones", "", "", "", "")
    rows = []
    for name, use in sorted(result.summary.cores.items(), key=lambda item: (-item[1].utilisation, item[0])):
        if use.bytes > 0:
            rows.append((name, use.multiplicity, ("", format_seconds(use.bytes), f"{100 * use.utilisation:.1f} %", "")))
    for name, cells in _merged(rows):
        table.add_row(name, *cells)
    return table
