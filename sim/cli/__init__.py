"""The command line: the only room that prints or exits.

One file per command, imported when it is asked for. A command file has a function `command` (or a `typer.Typer` named
`app` for a command with subcommands) and imports nothing heavier than typer and rich at its top.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

#: command -> module; the order of `tiersim --help`
COMMANDS = {
    "run": "sim.cli.run_",
    "check": "sim.cli.check",
    "fit": "sim.cli.fit",
    "compare": "sim.cli.compare",
    "sensitivity": "sim.cli.sensitivity",
    "show": "sim.cli.show",
    "list": "sim.cli.list_",
    "validate": "sim.cli.validate",
    "bench": "sim.cli.bench",
    "report": "sim.cli.report",
    "import": "sim.cli.import_",
    "export": "sim.cli.export",
    "trace": "sim.cli.trace",
    "record": "sim.cli.record",
    "calibrate": "sim.cli.calibrate",
}
_MAX_FAULTS = 50
#: exit code of a command that Ctrl-C ended, as shells give it
_INTERRUPTED = 130


class LazyGroup(TyperGroup):
    """Imports the module of a command when the command is named, so that `--help` and `check` stay fast."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is click's
        """Commands in the order of the table."""
        return [name for name, module in COMMANDS.items() if find_spec(module)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the signature is click's
        """The command, built from its module; None if there is none of that name."""
        if cmd_name not in COMMANDS or not find_spec(COMMANDS[cmd_name]):
            return None
        module = import_module(COMMANDS[cmd_name])
        if hasattr(module, "app"):
            built = typer.main.get_command(module.app)
        else:
            single = typer.Typer(add_completion=False, rich_markup_mode="rich")
            single.command(cmd_name)(module.command)
            built = typer.main.get_command(single)
        built.name = cmd_name
        return built


def _version(is_asked: bool) -> None:
    if is_asked:
        from sim import __version__

        typer.echo(f"tiersim {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    is_version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version and leave."),
) -> None:
    """Simulate memory tiers under LLM training: does it fit, how fast is a step, what binds?

    Example: tiersim run a12-reference-box

    Exit codes: 0 ok, 1 does not fit or a comparison failed, 2 bad input, 3 internal error.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `tiersim` command: runs it and exits with its code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are printed to standard error."""
    from sim.errors import InputError, TiersimError

    try:
        code = app(args=list(arguments) if arguments is not None else None, prog_name="tiersim", standalone_mode=False)
        sys.stdout.flush()
        if code == _INTERRUPTED:
            _complain("interrupted")
        return code if isinstance(code, int) else 0
    except InputError as error:
        shown = [str(fault) for fault in error.faults[:_MAX_FAULTS]]
        if len(error.faults) > _MAX_FAULTS:
            shown.append(f"and {len(error.faults) - _MAX_FAULTS} more faults")
        _complain("\n".join(shown) or str(error))
        return error.exit_code
    except TiersimError as error:
        return _internal(error) if error.exit_code == 3 else _failed(error)
    except typer.Abort:
        _complain("aborted")
        return _INTERRUPTED
    except KeyboardInterrupt:
        _complain("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has left: `tiersim ... | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - kept open until the interpreter ends
        return 0
    except OSError as error:  # a path that cannot be written or read: the user's to mend
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{(error.strerror or str(error)).lower()}")
        return 2
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is not None:  # click's usage errors
            asked = getattr(getattr(error, "ctx", None), "command_path", "tiersim")
            _complain("\n".join(filter(None, (usage(), f"try '{asked} --help'" if usage() else ""))))
            return int(getattr(error, "exit_code", 2))
        return _internal(error)


def _complain(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - the command line's own output


def _failed(error: Any) -> int:
    _complain(str(error))
    return int(error.exit_code)


def _internal(error: BaseException) -> int:
    """One line that helps a maintainer; the traceback is for those who ask for it."""
    if os.environ.get("TIERSIM_DEBUG"):
        import traceback

        traceback.print_exception(error)
    first = str(error).splitlines()[0] if str(error) else ""
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    _complain(f"internal error, a defect of tiersim and not of your input: {text} (TIERSIM_DEBUG=1 shows where)")
    return 3
