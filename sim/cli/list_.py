"""`tiersim list`: what is built in."""

from __future__ import annotations

from typing import Annotated

import typer

KINDS = ("topologies", "parts", "models", "scenarios", "frameworks")


def command(
    kind: Annotated[str, typer.Argument(help=f"one of {', '.join(KINDS)}; default all", show_default=False)] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """List built-in topologies, parts, models, scenarios and framework profiles.

    Example: tiersim list models
    """
    from sim.config.validation import suggestion
    from sim.errors import Fault, InputError

    if kind and kind not in KINDS:
        raise InputError(Fault(what=f"unknown kind {kind!r}", remedy=suggestion(kind, KINDS)))
    found = {name: names_of(name) for name in (KINDS if not kind else (kind,))}
    if is_json:
        import json

        typer.echo(json.dumps(found, indent=2))
        return
    for name, entries in found.items():
        if len(found) > 1:
            typer.echo(f"{name}:")
        for entry, meaning in entries.items():
            indent = "  " if len(found) > 1 else ""
            typer.echo(f"{indent}{entry:<34} {meaning}".rstrip())


def names_of(kind: str) -> dict[str, str]:
    """Name -> one line about it, of every built-in of a kind."""
    if kind == "models":
        from sim.workload.shapes import builtin, builtin_names, parameters

        return {name: f"{parameters(builtin(name)).total / 1e9:.2f} B parameters" for name in builtin_names()}
    if kind == "frameworks":
        from sim.workload import frameworks

        return {name: profile.source for name, profile in frameworks.PROFILES.items()}
    if kind == "parts":
        from sim.config.parts import part_names

        return dict.fromkeys(part_names(), "")
    from sim.config.locate import builtins

    return {name: _first_comment(path) for name, path in builtins(kind).items()}


def _first_comment(path: object) -> str:
    with open(str(path), encoding="utf-8") as stream:  # noqa: PTH123 - a built-in file
        line = stream.readline()
    return line.lstrip("#").strip() if line.startswith("#") else ""
