"""What `tiersim run --explain` prints: who owns the critical path, and what each owner would have to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from sim.cli.printing import plain_table
from sim.metrics.critical_path import ARRIVAL, OVERHEAD, critical_path
from sim.metrics.relief import factor_to_share, needed_bandwidth, relief_of, saving_s
from sim.units import format_bandwidth, format_seconds

if TYPE_CHECKING:
    from sim.experiment import Result

#: share of the step under which a resource no longer matters
_SMALL_SHARE = 0.1


def _speed(resource: str, factor: float, result: Result) -> str:
    """How fast a resource `factor` times as fast is, in bytes/s where it is a channel."""
    size = needed_bandwidth(resource, factor, result.program)
    return format_bandwidth(size) if size and size < float("inf") else f"{factor:.3g} times its speed"


def print_explanation(result: Result, out: Console) -> None:
    """The critical path: who owns its seconds, what each owner would have to be, and its longest operations."""
    step_s = result.summary.step_time_s
    small = f"under {100 * _SMALL_SHARE:.0f} % of the step at"
    table = plain_table("Critical path, by owner", "time", "share", "twice as fast saves at most", small)
    for name, seconds in result.summary.owners_s.items():
        is_resource = name not in (ARRIVAL, OVERHEAD)
        saved = format_seconds(saving_s(seconds, 2.0)) if is_resource else ""
        factor = factor_to_share(seconds, step_s, _SMALL_SHARE) if is_resource else 1.0
        needed = _speed(name, factor, result) if factor > 1.0 else ""
        table.add_row(name, format_seconds(seconds), f"{100 * seconds / step_s:.1f} %", saved, needed)
    out.print(table)
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
    table = plain_table("Operations on it", "stream", "count", "time")
    for (name, stream), (seconds, count) in sorted(longest.items(), key=lambda item: -item[1][0])[:12]:
        table.add_row(name, stream, str(count), format_seconds(seconds))
    out.print(table)
