"""`tiersim show`: the machine as a picture and a table of paths."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sim.topology.machine import Machine, Route


def command(
    topology: Annotated[str, typer.Argument(help="Built-in name or topology file.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder that gets the picture.")] = Path("results"),
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Write no picture.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Show a machine: devices, memory tiers, and the path of every kind of copy.

    Example: tiersim show epyc-9554p-2x4090
    """
    from sim.config import load_machine

    machine = load_machine(topology)
    paths = paths_of(machine)
    if is_json:
        import json

        typer.echo(json.dumps({"machine": machine.name, "tiers": tiers_of(machine), "paths": paths}, indent=2))
    else:
        _print(machine, paths)
    if not no_plots:
        from sim.config.results_folder import ResultsFolder
        from sim.report.machine_picture import draw_machine

        picture = ResultsFolder(out / "machines").draw(f"{machine.name}.png", lambda path: draw_machine(machine, path))
        print(picture, file=sys.stderr)  # noqa: T201 - messages go to standard error


def tiers_of(machine: Machine) -> list[dict[str, Any]]:
    """Every memory tier: capacity, bandwidth of its port for reads, idle latency from its own or nearest compute."""
    rows = []
    for tier in machine.tiers.values():
        media = machine.media[tier.name]
        channel = machine.channels[media.channel]
        initiator = tier.device if machine.devices[tier.device].kind in ("cpu", "gpu") else machine.host_of(tier.device)
        rows.append(
            {
                "tier": tier.name,
                "kind": tier.kind,
                "capacity_bytes": tier.capacity_bytes,
                "bandwidth_bytes_per_s": channel.bandwidth_per_s,
                "latency_s": machine.latency(initiator, tier.name) if tier.kind != "nvme" else media.access_latency_s,
                "seen_from": initiator,
            }
        )
    return rows


def paths_of(machine: Machine) -> list[dict[str, Any]]:
    """Bulk copies between every GPU's memory and the other tiers, GPU to GPU, and to the network; equal ones once."""
    from sim.errors import InputError

    found: dict[tuple[str, str], Route] = {}
    gpus = machine.gpus()
    for gpu in gpus:
        own = machine.memory_tier(gpu)
        for tier in machine.tiers:
            if machine.tiers[tier].device in gpus:
                continue
            for source, target in ((tier, own), (own, tier)):
                try:
                    found[source, target] = machine.route(source, target, initiator=gpu)
                except InputError:
                    continue
        for other in gpus:
            if other != gpu:
                found[own, machine.memory_tier(other)] = machine.peer(gpu, other)
    return [_row(source, target, route, machine) for (source, target), route in found.items()]


def _row(source: str, target: str, route: Route, machine: Machine) -> dict[str, Any]:
    rates = {name: machine.channels[name].bandwidth_per_s / cost for name, cost in route.uses if cost > 0}
    narrowest = min(rates, key=lambda name: (rates[name], name)) if rates else ""
    rate = min([route.rate_cap_bytes_per_s, *rates.values()])
    return {
        "source": source,
        "target": target,
        "bandwidth_bytes_per_s": rate,
        "latency_s": route.latency_s,
        "narrowest": narrowest if rates and rates[narrowest] <= rate else "copy engine",
        "through": list(route.hops) or [name for name, _cost in route.uses],
    }


def _print(machine: Machine, paths: list[dict[str, Any]]) -> None:
    from rich.text import Text
    from rich.tree import Tree

    from sim.cli.terminal import console, plain_table
    from sim.units import format_bandwidth, format_bytes, format_seconds

    out = console()
    nodes = f"  ({machine.num_nodes} nodes)" if machine.num_nodes > 1 else ""
    out.print(Text.assemble((machine.name, "bold"), f"  {machine.title}{nodes}"))
    trees: dict[str, Tree] = {}
    for name, device in machine.devices.items():
        parent = next((trees[item] for item in device.to if item in trees), None)
        count = f" x{device.count}" if device.count > 1 else ""
        label = f"{name}  {device.part_name}{count}"
        trees[name] = parent.add(label) if parent is not None else Tree(label)
    for name, device in machine.devices.items():
        if not any(item in trees for item in device.to):
            out.print(trees[name])
    out.print()
    table = plain_table("Memory tier", "kind", "capacity", "bandwidth", "idle latency", "from")
    for row in tiers_of(machine):
        sizes = (format_bytes(row["capacity_bytes"]), format_bandwidth(row["bandwidth_bytes_per_s"]))
        table.add_row(row["tier"], row["kind"], *sizes, format_seconds(row["latency_s"]), row["seen_from"])
    out.print(table)
    out.print()
    table = plain_table("Path", "bandwidth", "start", "narrowest")
    for label, row in _distinct(paths):
        start = format_seconds(row["latency_s"])
        table.add_row(label, format_bandwidth(row["bandwidth_bytes_per_s"]), start, row["narrowest"])
    out.print(table)
    if machine.warnings:
        out.print()
    for warning in machine.warnings:
        out.print(Text(f"warning: {warning}", style="yellow"))


def _distinct(paths: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Paths that differ only in the number of the GPU are shown once, with how many there are."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in paths:
        plain = [_unnumbered(row[key]) for key in ("source", "target", "narrowest")]
        key = (*plain, round(row["bandwidth_bytes_per_s"]), round(row["latency_s"] * 1e9), len(row["through"]))
        groups.setdefault(key, []).append(row)
    lines = []
    for rows in groups.values():
        first = rows[0]
        more = f"  (and {len(rows) - 1} like it)" if len(rows) > 1 else ""
        lines.append((f"{first['source']} -> {first['target']}{more}", first))
    return lines


def _unnumbered(name: str) -> str:
    return "".join(character for character in name if not character.isdigit())
