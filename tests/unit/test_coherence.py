"""Back-invalidation: who is told what, per line, and that those bytes cross the links of the others."""

import random

import pytest

from sim.laws.coherence import LINE_BYTES, MESSAGE_BYTES, caches_hold, invalidation

MESSAGE = MESSAGE_BYTES / LINE_BYTES


@pytest.mark.parametrize(("num_hosts", "write_share"), [(1, 0.5), (4, 0.0)])
def test_one_host_and_readers_say_nothing(num_hosts, write_share):
    quiet = invalidation(num_hosts, write_share, 1.0)
    assert (quiet.to_hosts, quiet.from_hosts, quiet.written_back) == (0.0, 0.0, 0.0)


def test_two_hosts_that_only_write_take_every_second_line_from_each_other():
    traffic = invalidation(2, 1.0, 1.0)
    assert traffic.written_back == pytest.approx(0.5)  # the access before was the other's with probability 1/2
    assert traffic.to_hosts == pytest.approx(0.5 * MESSAGE)
    assert traffic.from_hosts == pytest.approx(0.5 * (2 * MESSAGE + 1.0))


def test_only_cached_lines_count():
    all_, some = invalidation(3, 0.3, 1.0), invalidation(3, 0.3, 0.25)
    assert some.to_hosts == pytest.approx(0.25 * all_.to_hosts)
    assert some.written_back == pytest.approx(0.25 * all_.written_back)


@pytest.mark.parametrize(("num_hosts", "write_share"), [(2, 0.1), (3, 0.43), (8, 0.05), (5, 0.9)])
def test_the_steady_state_is_that_of_a_directory_played_line_by_line(num_hosts, write_share):
    rng = random.Random(1)
    holders, owner, snoops, dirty, num = set(), None, 0, 0, 200_000
    for _ in range(num):
        host = rng.randrange(num_hosts)
        is_dirty_elsewhere = owner is not None and owner != host
        if rng.random() < write_share:
            snoops += len(holders - {host})
            dirty += is_dirty_elsewhere
            holders, owner = {host}, host
        else:
            snoops += is_dirty_elsewhere
            dirty += is_dirty_elsewhere
            owner = None if is_dirty_elsewhere else owner
            holders.add(host)
    expected = invalidation(num_hosts, write_share, 1.0)
    assert expected.to_hosts == pytest.approx(MESSAGE * snoops / num, rel=0.03)
    assert expected.written_back == pytest.approx(dirty / num, rel=0.03)


# ------------------------------------------------------------------------------------------------------- the snoop filter


def played(num_hosts, write_share, num_lines, capacity, num=400_000):
    """Snoops and dirty lines of coherence, and snoops of evictions, per access of a directory of `capacity` entries."""
    rng = random.Random(2)
    holders, owner, entries = {}, {}, []
    snoops = dirty = evicted = 0
    for _ in range(num):
        host, line = rng.randrange(num_hosts), rng.randrange(num_lines)
        if line not in holders:
            if len(entries) == capacity:
                place = rng.randrange(capacity)
                victim, entries[place] = entries[place], line
                evicted += len(holders.pop(victim))
                owner.pop(victim, None)
            else:
                entries.append(line)
            holders[line] = set()
        is_dirty_elsewhere = owner.get(line, host) != host
        dirty += is_dirty_elsewhere
        if rng.random() < write_share:
            snoops += len(holders[line] - {host})
            holders[line], owner[line] = {host}, host
        else:
            snoops += is_dirty_elsewhere
            if is_dirty_elsewhere:
                del owner[line]
            holders[line].add(host)
    return snoops / num, dirty / num, evicted / num


@pytest.mark.parametrize(
    ("num_hosts", "write_share", "tracked"), [(2, 0.43, 0.5), (4, 0.1, 0.9), (4, 0.0, 0.3), (8, 0.3, 0.05)]
)
def test_a_filter_that_is_too_small_is_that_of_a_directory_played_line_by_line(num_hosts, write_share, tracked):
    snoops, dirty, evicted = played(num_hosts, write_share, 1000, round(1000 * tracked))
    expected = invalidation(num_hosts, write_share, 1.0, tracked)
    assert expected.to_hosts == pytest.approx(MESSAGE * snoops, rel=0.05, abs=1e-3)
    assert expected.written_back == pytest.approx(dirty, rel=0.05, abs=1e-3)
    assert expected.evicted == pytest.approx(MESSAGE * evicted, rel=0.05)


@pytest.mark.parametrize(("tracked", "is_quiet"), [(1.0, True), (0.999, False)])
def test_readers_are_snooped_once_the_region_outgrows_the_filter(tracked, is_quiet):
    traffic = invalidation(4, 0.0, 1.0, tracked)
    assert (traffic.evicted == 0.0) is is_quiet
    assert traffic.to_hosts == traffic.written_back == 0.0


def test_a_filter_as_large_as_the_caches_evicts_nothing():
    """Small caches hold little of a region: the filter has to track that much and no more."""
    held = caches_hold(4, 0.1)
    assert held == pytest.approx(1 - 0.9**4)
    assert invalidation(4, 0.3, 0.1, held) == invalidation(4, 0.3, 0.1)
    assert invalidation(4, 0.3, 0.1, held * 0.99).evicted > 0.0


def test_a_filter_without_entries_keeps_nothing_and_tells_each_line_once():
    traffic = invalidation(4, 0.3, 1.0, 0.0)
    assert (traffic.to_hosts, traffic.written_back, traffic.evicted) == (0.0, 0.0, MESSAGE)
