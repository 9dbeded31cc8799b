"""Seconds told by owner: all of them, and many operations at a time as each by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine import replay
from sim.metrics.owners import seconds_by_owner
from sim.metrics.seen import Seen
from tests.random_programs import random_program


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_second_has_an_owner_and_company_changes_none(seed, has_windows):
    program = random_program(seed, num_streams=4, num_channels=3, num_operations=24, has_windows=has_windows)
    seen = Seen(program, replay(program))
    rows = np.arange(len(seen.records))
    together = seconds_by_owner(seen, rows, None)
    alone: dict[str, float] = {}
    for row in rows:
        own = seconds_by_owner(seen, rows[row : row + 1], None)
        record, operation = seen.records[row], seen.operations[row]
        begun_s = min(record.ready_s + operation.latency_s, record.end_s)
        assert math.fsum(own.values()) == pytest.approx(begun_s - record.ready_s + record.end_s - record.start_s, abs=1e-12)
        for name, seconds in own.items():
            alone[name] = alone.get(name, 0.0) + seconds
    assert together.keys() == alone.keys()
    assert together == pytest.approx(alone, rel=1e-12)


def test_no_operations_have_no_owners():
    program = random_program(1)
    assert seconds_by_owner(Seen(program, replay(program)), np.zeros(0, np.int64), None) == {}
