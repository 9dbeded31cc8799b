"""Drives by blocks in flight: latency, dies that blocks share, the rated operations, bandwidth."""

from __future__ import annotations

import pytest

from sim.laws.storage import RATED_DEPTH, rate

BLOCK, LATENCY_S, DRIVE, OPERATIONS = 4096.0, 69e-6, 1e12, 1e6


def _operations(depth: float, num_drives: int = 1) -> float:
    return rate(BLOCK, depth, LATENCY_S, DRIVE, OPERATIONS, num_drives) / BLOCK


def test_one_block_waits_for_nobody_and_the_rated_depth_reaches_the_rated_operations() -> None:
    assert _operations(1) == pytest.approx(1.0 / LATENCY_S, rel=0.01)
    assert _operations(RATED_DEPTH) == pytest.approx(OPERATIONS, rel=1e-6)
    assert _operations(RATED_DEPTH - 64) < 0.999 * OPERATIONS
    assert _operations(4 * RATED_DEPTH) == pytest.approx(OPERATIONS, rel=1e-12)


def test_blocks_that_meet_at_a_die_wait_near_the_knee() -> None:
    knee = OPERATIONS * LATENCY_S  # where latency alone would give the rated operations
    assert 0.5 < _operations(knee) / OPERATIONS < 0.7
    assert _operations(2 * knee) < 2 * _operations(knee)


def test_drives_share_the_blocks_in_flight() -> None:
    assert _operations(64, num_drives=4) == pytest.approx(4 * _operations(16))
    assert _operations(64, num_drives=4) > _operations(64)


def test_a_rating_beyond_the_rated_depth_is_still_reached_in_the_end() -> None:
    many = 20e6  # 1,380 blocks in flight by latency alone
    assert rate(BLOCK, 1e5, LATENCY_S, DRIVE, many) / BLOCK == pytest.approx(many)
    assert rate(BLOCK, RATED_DEPTH, LATENCY_S, DRIVE, many) / BLOCK < RATED_DEPTH / LATENCY_S


def test_large_blocks_move_at_the_drive_s_bandwidth() -> None:
    assert rate(2.0**20, 32, LATENCY_S, 7e9, OPERATIONS) == 7e9
    assert rate(2.0**20, 1, LATENCY_S, 7e9) == pytest.approx(2.0**20 / (LATENCY_S + 2.0**20 / 7e9))
