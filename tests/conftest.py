"""Every replay of every test is checked: order, durations, conservation of bytes, bandwidth, busy <= elapsed, capacity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sim.engine import run as engine_run
from sim.errors import InvariantError
from sim.metrics.invariants import broken
from sim.records import Program, Replay

#: replays up to this many operations are repeated with full records, so that rates are checked too
_MOST_REPEATED = 2_000


@pytest.fixture(autouse=True, scope="session")
def _checked_replays() -> Iterator[None]:
    plain = engine_run.run

    def checked(program: Program, **options: Any) -> Replay:
        result = plain(program, **options)
        if options["processes"] or options["policy"] is not None:
            return result  # what came from outside is not in the program
        seen = result
        if not options["is_full"] and len(program.operations) <= _MOST_REPEATED:
            seen = plain(program, **{**options, "is_full": True})
        if found := broken(program, seen, is_enforced=options["is_enforced"]):
            raise InvariantError(f"replay of {program.name!r} is impossible: " + "; ".join(found[:5]))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_run, "run", checked)
        yield
