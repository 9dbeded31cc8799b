"""Backends: every point comes back once, whoever dies."""

import os
import signal
from functools import partial
from itertools import count
from pathlib import Path

from sim.config.sweep import Assignment
from sim.study.pool import Processes, Serial
from sim.study.store import Outcome


def _points(num):
    return [(i, Assignment({"i": i}, {"i": i})) for i in range(num)]


def _chunks(num, size):
    points = _points(num)
    return (points[i : i + size] for i in range(0, num, size))


def _square(chunk):
    return [Outcome(position=i, key=str(i), status="fits", point=b"%d" % (i * i)) for i, _ in chunk]


def _square_unless_poisoned(poison, chunk):
    for position, _ in chunk:
        if position == poison:
            os.kill(os.getpid(), signal.SIGKILL)
    return _square(chunk)


def _die_once(marker, chunk):
    if any(position == 7 for position, _ in chunk) and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return _square(chunk)


def _lost(point, reason):
    return Outcome(position=point[0], key=str(point[0]), status="lost", reason=reason)


def _run(backend, work, chunks):
    return {row.position: row for batch in backend.run(work, chunks, _lost) for row in batch}


def test_processes_and_serial_agree():
    serial = _run(Serial(), _square, _chunks(30, 4))
    assert _run(Processes(2), _square, _chunks(30, 4)) == serial
    assert [serial[i].point for i in (0, 29)] == [b"0", b"841"]


def test_a_point_that_kills_its_worker_is_lost_and_the_rest_is_done():
    rows = _run(Processes(2), partial(_square_unless_poisoned, 7), _chunks(20, 3))
    assert sorted(rows) == list(range(20))
    assert [i for i, row in rows.items() if row.status == "lost"] == [7]
    assert "died" in rows[7].reason


def test_a_worker_killed_from_outside_costs_nothing(tmp_path):
    rows = _run(Processes(2), partial(_die_once, str(tmp_path / "marker")), _chunks(20, 3))
    assert {row.status for row in rows.values()} == {"fits"}
    assert sorted(rows) == list(range(20))


def test_chunks_are_drawn_lazily():
    drawn = count()

    def source():
        for chunk in _chunks(1000, 1):
            next(drawn)
            yield chunk

    batches = Processes(1).run(_square, source(), _lost)
    next(batches)
    batches.close()
    assert next(drawn) < 10
