"""`tiersim fit`: memory only: peaks, verdict, what makes it fit, and the largest batch, sequence or depth that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from sim.study.fit import Fit

_VERDICTS = {"fits": ("fits", "bold green"), "tight": ("tight", "bold yellow"), "does_not_fit": ("does not fit", "bold red")}


def command(
    scenario: Annotated[str, typer.Argument(help="Scenario file or built-in name.", show_default=False)],
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    maximum: Annotated[
        str, typer.Option("--max", help="Search the largest that fits: batch_size, sequence_length, layers or gpu_layers.")
    ] = "",
    every_term: Annotated[bool, typer.Option("--terms", help="Show every term of the plan with its arithmetic.")] = False,
) -> int:
    """Does it fit? Peak memory per tier, phase and tensor class, without simulating time.

    Example: tiersim fit a12-reference-box --max batch_size

    Exit codes: 0 every point fits (tight counts), 1 some point does not.
    """
    from sim.config import load_scenario
    from sim.errors import Fault, InputError
    from sim.study.fit import assess, each_job, largest

    file = load_scenario(scenario)
    points: list[dict[str, Any]] = []
    fits: list[Fit] = []
    for point in file.expand():
        for job in each_job(point):
            found = assess(job, with_suggestions=not file.sweep)
            body = found.point()
            if maximum:
                body["max"] = {maximum: largest(job, maximum)}
            fits.append(found)
            points.append(body)
    if not fits:
        what = "holds a range without steps, which only a search draws from: there is no point to plan"
        raise InputError(Fault(what=what, remedy="give it a step, or name values", path="sweep", file=scenario))
    code = 0 if all(found.verdict != "does_not_fit" for found in fits) else 1
    if is_json:
        import json

        is_single = len(points) == 1 and not file.sweep
        typer.echo(json.dumps(points[0] if is_single else {"scenario": file.name, "points": points}, indent=2))
        return code
    from sim.cli.terminal import console

    out = console()
    if file.sweep:
        _print_points(file.name, points, out)
        return code
    for found, body in zip(fits, points, strict=True):
        _print_fit(found, body, out, every_term=every_term)
    if len(fits) > 1:
        out.print("- each job is planned alone; what jobs of one host or pool need together is shown by `tiersim run`")
    return code


def _print_fit(found: Fit, body: dict[str, Any], out: Console, *, every_term: bool) -> None:
    from rich.text import Text

    from sim.placement.capacity import verdict
    from sim.units import format_bytes

    word, style = _VERDICTS[found.verdict]
    out.print(Text.assemble((found.scenario, "bold"), "  ", (word, style), _margin(found)))
    out.print()
    out.print(_tier_table(found))
    for need in found.misfits:
        short = format_bytes(need.peak_bytes - need.capacity_bytes)
        first = next(phase for phase, row in found.phases.items() if row.get(need.tier, 0.0) > need.capacity_bytes)
        since = "" if first == need.phase else f" (too large from phase {first} on)"
        text = f"{need.tier} is {short} short in phase {need.phase}{since}; its largest tensors:"
        out.print(Text(text.replace("_", " "), style="red"))
        for term in need.largest[:5]:
            size = format_bytes(term.size_bytes)
            ranks = found.footprint.ranks_per_host if term.tier != "gpu" and term.per == "rank" else 1
            times = f", for each of the host's {ranks} ranks" if ranks > 1 else ""
            out.print(Text(f"  {size:>10}  {term.name}" + (f" = {term.formula}" if term.formula else "") + times))
    out.print()
    out.print(_phase_table(found))
    if every_term:
        _print_terms(found, out)
    if found.suggestions:
        out.print()
        out.print(Text("Any one of these makes it fit (each planned again):", style="bold"))
        for item in found.suggestions:
            after = f"{item.tier} {format_bytes(item.peak_bytes)} of {format_bytes(item.capacity_bytes)}"
            after += ", tight" if verdict(item.peak_bytes, item.capacity_bytes) == "tight" else ""
            out.print(Text(f"  {item.change}  ->  {after}"))
    if found.misfits and not found.suggestions:
        out.print()
        out.print(Text("No change, pair of changes or larger part that is sold makes it fit.", style="bold"))
    for name, value in body.get("max", {}).items():
        out.print()
        out.print(Text(f"Largest {name} that fits: {value or 'none, not even 1'}", style="bold"))
    out.print()
    for note in found.notes:
        out.print(Text(f"- {note}", style="dim"))


def _margin(found: Fit) -> str:
    """How much the fullest tier has left, or lacks."""
    from sim.units import format_bytes

    need = found.tightest
    if need is None:
        return ""
    left = need.capacity_bytes - need.peak_bytes
    if left < 0:
        return f"  {need.tier} lacks {format_bytes(-left)}"
    return f"  {need.tier} is fullest, {format_bytes(left)} ({100 * left / need.capacity_bytes:.0f} %) left"


def _tier_table(found: Fit) -> Any:
    from rich.text import Text

    from sim.cli.terminal import plain_table
    from sim.units import format_bytes

    kinds = list(dict.fromkeys(kind for need in found.tiers.values() for kind in need.by_class))
    table = plain_table("", *found.tiers)
    needs = list(found.tiers.values())
    table.add_row("capacity", *(format_bytes(need.capacity_bytes) for need in needs))
    table.add_row("peak", *(format_bytes(need.peak_bytes) for need in needs))
    table.add_row("used", *(f"{100 * need.peak_bytes / need.capacity_bytes:.0f} %" for need in needs))
    table.add_row("in phase", *(need.phase for need in needs))
    table.add_row("verdict", *(Text(*_VERDICTS[need.verdict]) for need in needs))
    for kind in kinds:
        sizes = [need.by_class.get(kind, 0.0) for need in needs]
        table.add_row(f"  {kind.replace('_', ' ')}", *(format_bytes(size) if size else "" for size in sizes))
    return table


def _phase_table(found: Fit) -> Any:
    from sim.cli.terminal import plain_table
    from sim.units import format_bytes

    table = plain_table("phase", *found.tiers, title="By phase")
    for phase, row in found.phases.items():
        table.add_row(phase.replace("_", " "), *(format_bytes(row.get(name, 0.0)) for name in found.tiers))
    return table


def _print_terms(found: Fit, out: Console) -> None:
    """Every term of the plan: bytes, from which moment on, arithmetic; by tier, of one rank unless it is the host's."""
    from rich.text import Text

    from sim.units import format_bytes

    ranks = found.footprint.ranks_per_host
    for tier in found.footprint.tiers():
        whose = "one rank" if tier == "gpu" or ranks == 1 else f"each of {ranks} ranks of a host"
        out.print()
        out.print(Text(f"Every term on {tier} ({whose})", style="bold"))
        for term in sorted(found.footprint.terms, key=lambda item: -item.size_bytes):
            if term.tier != tier:
                continue
            when = f"from {term.moments[0]}" if len(term.moments) > 2 else f"in {' and '.join(term.moments)}"
            once = " (once per host)" if term.per == "host" else ""
            text = f"  {format_bytes(term.size_bytes):>10}  {term.name}{once}, {when.replace('_', ' ')}"
            out.print(Text(text + (f" = {term.formula}" if term.formula else "")))


def _print_points(name: str, points: list[dict[str, Any]], out: Console) -> None:
    from rich.text import Text

    from sim.cli.terminal import plain_table
    from sim.units import format_bytes

    out.print(Text(name, style="bold"))
    tiers = list(dict.fromkeys(tier for point in points for tier in point["tiers"]))
    jobs = [point["scenario"].removeprefix(name).lstrip(": ") for point in points]
    parameters = list(dict.fromkeys(key for point in points for key in point["parameters"]))
    searched = list(points[0].get("max", {})) if points else []
    several = ("job",) if any(jobs) else ()
    table = plain_table(
        "Point", *several, *(key.rsplit(".", 1)[-1] for key in parameters), *tiers, *(f"max {key}" for key in searched)
    )
    for point, job in zip(points, jobs, strict=True):
        word, style = _VERDICTS[point["verdict"]]
        cells = [str(point["parameters"].get(key, "")) for key in parameters]
        peaks = [format_bytes(point["tiers"][tier]["peak_bytes"]) if tier in point["tiers"] else "" for tier in tiers]
        table.add_row(
            Text(word, style=style),
            *([job] if several else []),
            *cells,
            *peaks,
            *(str(value) for value in point.get("max", {}).values()),
        )
    out.print(table)
