"""Numbers as people read them, at both sides of each change of prefix."""

import pytest

from sim.units import format_bandwidth, format_bytes, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1e-3, "1 ms"), (0.999999999e-3, "1 ms"), (0.9999e-3, "999.9 us"), (0.99994e-3, "999.9 us"), (0.99996, "1 s"),
        (0.0, "0 s"), (59.99, "59.99 s"), (3600.0, "1 h 0 min"),
    ],
)  # fmt: skip
def test_times_change_their_unit_where_they_round_to_one(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(999.4e6, "999 MB/s"), (999.6e6, "1,000 MB/s"), (1e9, "1 GB/s"), (1.5e15, "1,500 TB/s")]
)
def test_no_bandwidth_is_written_with_an_exponent(value, text):
    assert format_bandwidth(value) == text


@pytest.mark.parametrize(("value", "text"), [(1000 * 2**30, "1,000 GiB"), (999.6 * 2**30, "1,000 GiB"), (2.0**40, "1 TiB")])
def test_no_size_is_written_with_an_exponent(value, text):
    assert format_bytes(value) == text
