"""Pictures of named choices: which sweeps get bars, hatches of what is not built, edges of the band."""

import pytest

from sim.report import choices, curves, swept


def point(label, seconds, **more):
    body = {"parameters": {"machine": label}, "fits": seconds is not None, "step_time_s": seconds}
    return body | {"tokens_per_s": 100 / seconds if seconds else None} | more


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("48 GB/s", 48.0),
        (4, 4.0),
        ("60%", 60.0),
        ("2024 GH200 superchip", None),
        ("4 of 8 DIMMs", None),
        ("2e3 ms", 2000.0),
        (True, None),
    ],
)
def test_words_that_start_with_a_number_are_words(value, number):
    assert swept.number_of(value) == number


def test_the_slow_end_of_the_time_is_the_low_end_of_a_rate():
    band = point("a", 10.0, band=(0.8, 1.25))
    assert choices._edges(band, 10.0, is_time=True) == (8.0, 12.5)
    assert choices._edges(band, 10.0, is_time=False) == (8.0, 12.5)
    wide = point("a", 10.0, band=(0.5, 1.25))
    assert choices._edges(wide, 10.0, is_time=False) == (8.0, 20.0)


def test_bars_of_unbuilt_parts_are_hatched():
    points = [point("2022 A100", 10.0), point("2024 GH200", None), point("2030 x", 5.0, hypothetical=["x"], band=(0.8, 1.2))]
    (axes,) = curves.sweep_figure("road", points, "step_time_s").axes
    assert [bar.get_hatch() for bar in axes.patches] == ["", "///"]
    assert [bar.get_width() for bar in axes.patches] == [10.0, 5.0]
    assert any("does not fit" in text.get_text() for text in axes.texts)
    assert axes.get_xlim()[1] >= 10.0
    assert axes.get_xscale() == "linear"


@pytest.mark.parametrize(("least", "scale"), [(5.0, "linear"), (4.9, "log")])
def test_a_range_beyond_twenty_is_logarithmic(least, scale):
    points = [point("a", 100.0), point("b", least)]
    (axes,) = curves.sweep_figure("wide", points, "step_time_s").axes
    assert axes.get_xscale() == scale


def test_lines_have_their_error_band():
    points = [
        {"parameters": {"batch": size}, "fits": True, "step_time_s": 2.0 * size, "band": (0.8, 1.25)} for size in (1, 2, 4)
    ]
    (axes,) = curves.sweep_figure("band", points, "step_time_s").axes
    (band,) = axes.collections
    assert band.get_paths()[0].get_extents().ymax == 10.0
