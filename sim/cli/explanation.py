"""What `tiersim run --explain` prints: who owns the critical path, and what each owner would have to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from sim.cli.terminal import plain_table
from sim.metrics.critical_path import critical_path, launching_share
from sim.metrics.owner_names import ARRIVAL, OVERHEAD
from sim.metrics.relief import factor_to_share, needed_bandwidth, relief_of, saving_s
from sim.units import format_bandwidth, format_seconds

if TYPE_CHECKING:
    from sim.experiment import Result

#: share of the step below which owners are put together
_LEAST_SHARE = 0.005
#: share of the step under which a resource no longer matters
_SMALL_SHARE = 0.1


def _speed(resource: str, factor: float, result: Result) -> str:
    """How fast a resource `factor` times as fast is, in bytes/s where it is a channel."""
    size = needed_bandwidth(resource, factor, result.program)
    return format_bandwidth(size) if size and size < float("inf") else f"{factor:.3g} times its speed"


def print_explanation(result: Result, out: Console) -> None:
    """The critical path: who owns its seconds, what each owner would have to be, and its longest operations."""
    step_s = result.summary.step_time_s
    table = plain_table("Critical path, by owner", "time", "share", "twice as fast saves", f"under {_SMALL_SHARE:.0%} at")
    shown = {name: seconds for name, seconds in result.summary.owners_s.items() if seconds >= _LEAST_SHARE * step_s}
    for name, seconds in shown.items():
        is_resource = name not in (ARRIVAL, OVERHEAD)
        saved = format_seconds(saving_s(seconds, 2.0)) if is_resource else ""
        factor = factor_to_share(seconds, step_s, _SMALL_SHARE) if is_resource else 1.0
        needed = _speed(name, factor, result) if factor > 1.0 else ""
        table.add_row(name, format_seconds(seconds), f"{100 * seconds / step_s:.1f} %", saved, needed)
    if len(shown) < len(result.summary.owners_s):
        rest_s = sum(result.summary.owners_s.values()) - sum(shown.values())
        num = len(result.summary.owners_s) - len(shown)
        table.add_row(f"and {num} more", format_seconds(rest_s), f"{100 * rest_s / step_s:.1f} %", "", "")
    out.print(table)
    out.print(Text("What a faster resource saves is at most that, the speed it needs at least that: what it hides may appear."))
    if result.inference is None and result.summary.owners_s.get(OVERHEAD, 0.0) > _SMALL_SHARE * step_s:
        share = launching_share(result.program, result.replay)
        remedy = "; larger micro-batches, fused kernels or CUDA graphs lessen it" if share > 0.5 else ""
        out.print(Text(f"{100 * share:.0f} % of the overhead is the CPU launching kernels{remedy}."))
    relief = relief_of(result.summary.owners_s, result.program)
    if relief is not None and relief.then:
        speed = _speed(relief.resource, relief.factor, result)
        out.print(Text(f"{relief.resource} is first until it has {speed}; then {relief.then} is (all else equal)."))
    out.print()
    by_id = {operation.id: operation for operation in result.program.operations}
    longest: dict[tuple[str, str], tuple[float, int]] = {}
    for record in critical_path(result.program, result.replay):
        operation = by_id[record.id]
        key = (operation.name.rstrip("0123456789 ") or operation.kind.value, operation.stream)
        seconds, count = longest.get(key, (0.0, 0))
        longest[key] = (seconds + record.end_s - record.ready_s, count + 1)
    title = "Operations on it, of the micro-batches shown" if result.shown else "Operations on it"
    table = plain_table(title, "stream", "count", "time")
    for (name, stream), (seconds, count) in sorted(longest.items(), key=lambda item: -item[1][0])[:12]:
        table.add_row(name, stream, str(count), format_seconds(seconds))
    out.print(table)
