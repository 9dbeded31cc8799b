"""`tiersim check`: are the files right, and what do they mean in SI?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sim.config import ScenarioFile
    from sim.scenario import Scenario
    from sim.topology.machine import Machine


def command(
    files: Annotated[list[str] | None, typer.Argument(help="Scenario or topology files, or built-in names.")] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print the resolved inputs as JSON.")] = False,
    is_schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of scenario files and leave.")] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Print every number of the machine with its source.")] = False,
) -> None:
    """Check scenario and topology files: every fault at once, then the inputs as resolved, in SI.

    Example: tiersim check my-scenario.yaml
    """
    from sim.errors import Fault, InputError

    if is_schema:
        import json

        from sim.config.schema import scenario_schema

        typer.echo(json.dumps(scenario_schema(), indent=2))
        return
    if not files:
        raise InputError(Fault(what="no file is given", remedy="for example: tiersim check my-scenario.yaml"))
    faults: list[Fault] = []
    checked: list[dict[str, Any]] = []
    for name in files:
        try:
            checked.append(_checked(name, is_quiet=is_json, has_sources=sources))
        except InputError as error:
            faults.extend(error.faults)
    if faults:
        raise InputError(faults)
    if is_json:
        import json

        typer.echo(json.dumps(checked[0] if len(checked) == 1 else checked, indent=2, default=str))


def _checked(name: str, *, is_quiet: bool, has_sources: bool) -> dict[str, Any]:
    from sim.config import read_yaml
    from sim.config.machine import machine_from
    from sim.config.scenario_file import scenario_from

    document = read_yaml(_located(name))
    if "devices" in document.data:
        machine = machine_from(document, name=Path(document.file).stem)
        if not is_quiet:
            _print_machine(machine, document.file, has_sources=has_sources)
        return {"file": document.file, "kind": "topology", **_machine(machine)}
    file = scenario_from(document)
    if file.sweep or file.compare:
        file.check()
    scenario = file.resolve(file.first_overlay)
    if not is_quiet:
        _print_scenario(file, scenario, has_sources=has_sources)
    jobs = [
        {"name": job.name, "host": job.host, "workload": plain(job.workload), "placement": plain(job.placement.entries)}
        for job in scenario.jobs
    ]
    return {"file": document.file, "kind": "scenario", "name": file.name, "jobs": jobs, **_machine(scenario.machine)}


def _located(name: str) -> Path:
    """A file, or a built-in scenario or topology of that name."""
    from sim.config.locate import builtins, locate

    return locate(name, "topologies" if name in builtins("topologies") else "scenarios")


def _machine(machine: Machine) -> dict[str, Any]:
    return {
        "machine": machine.name,
        "devices": {name: device.part_name for name, device in machine.devices.items()},
        "sources": dict(machine.sources),
        "assumptions": list(machine.assumptions),
        "warnings": list(machine.warnings),
        "advice": list(machine.advice),
    }


def plain(value: Any) -> Any:
    """A dataclass (or a tuple of them) as nested plain data."""
    import dataclasses
    from collections.abc import Mapping

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def flattened(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted path -> scalar, of nested plain data; empty blocks and None are left out."""
    if isinstance(value, dict):
        return [row for key, item in value.items() for row in flattened(item, f"{prefix}.{key}" if prefix else str(key))]
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return [row for index, item in enumerate(value) for row in flattened(item, f"{prefix}[{index}]")]
    return [] if value is None or value == [] else [(prefix, value)]


def _print_scenario(file: ScenarioFile, scenario: Scenario, *, has_sources: bool) -> None:
    from rich.text import Text

    from sim.cli.terminal import console, grouped, plain_table

    out = console()
    out.print(Text.assemble((file.document.file, "bold"), "  ", ("ok", "bold green")))
    if file.plan is not None:
        out.print(f"sweep of {file.plan.num_points} points; the first one:")
    for job in scenario.jobs:
        table = plain_table("Input", "value (SI)", title=job.name, numbers=False)
        for path, value in flattened(plain(job.workload)):
            table.add_row(path, _shown(value))
        for entry in job.placement.entries:
            layers = f" layers {entry.layers[0]}-{entry.layers[1]}" if entry.layers else ""
            shares = ", ".join(f"{tier} {100 * share:.6g} %" for tier, share in entry.shares.items())
            policy = "" if entry.policy == "interleave" else f" ({entry.policy})"
            table.add_row(f"placement.{entry.tensor_class.value}{layers}", shares + policy)
        out.print(table)
        out.print()
    _print_machine(scenario.machine, "", has_sources=has_sources)
    for note in grouped(scenario.assumptions):
        out.print(Text(f"assumed: {note}"))


def _print_machine(machine: Machine, file: str, *, has_sources: bool) -> None:
    from rich.text import Text

    from sim.cli.terminal import console, grouped, plain_table

    out = console()
    if file:
        out.print(Text.assemble((file, "bold"), "  ", ("ok", "bold green")))
    out.print(Text(f"{machine.name}: {machine.title}", style="bold"))
    table = plain_table("Device", "part", "hangs on", numbers=False)
    for name, device in machine.devices.items():
        count = f" x{device.count}" if device.count > 1 else ""
        table.add_row(name, device.part_name + count, ", ".join(device.to))
    out.print(table)
    out.print()
    if has_sources:
        _print_sources(machine)
    else:
        counts: dict[str, int] = {}
        for source in machine.sources.values():
            kind = source.split(":")[0]
            counts[kind] = counts.get(kind, 0) + 1
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        out.print(f"{len(machine.sources)} numbers with a source ({kinds}); --sources lists them")
    for note in grouped(machine.assumptions):
        out.print(Text(f"- {note}"))
    for warning in machine.warnings:
        out.print(Text(f"warning: {warning}", style="yellow"))
    for rule in machine.advice:
        out.print(Text(f"rule of thumb: {rule}", style="yellow"))


def _print_sources(machine: Machine) -> None:
    from sim.cli.terminal import console, plain_table

    out = console()
    table = plain_table("Number", "value (SI)")
    table.add_column("source", justify="left", overflow="fold")
    for path, source in machine.sources.items():
        table.add_row(path, _shown(_value(machine, path)), source)
    out.print(table)


def _value(machine: Machine, path: str) -> Any:
    """The number that ``"gpu0.memory.bandwidth"`` names."""
    device, *keys = path.split(".")
    value: Any = machine.devices[device].part if device in machine.devices else {}
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    return "" if value is None else str(value)
