"""Back-invalidation: who is told what, per line, and that those bytes cross the links of the others."""

import random

import pytest

from sim.laws.coherence import LINE_BYTES, MESSAGE_BYTES, invalidation

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
