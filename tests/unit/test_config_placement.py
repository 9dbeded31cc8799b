# ruff: noqa: E501 - exact messages stay on one line
"""The forms of the placement block, and what each refuses."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import parse_yaml
from sim.config.placement_block import placement_from
from sim.config.placement_entry import layer_range
from sim.errors import InputError
from sim.placement.plan import Placement
from sim.records import TensorClass


def placement(text: str) -> Placement:
    document = parse_yaml(f"placement: {text}\n", "f.yaml")
    return placement_from(document.data["placement"], document, ("placement",))


def fault(text: str) -> str:
    with pytest.raises(InputError) as caught:
        placement(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("{weights: dram}", {"dram": 1.0}),
        ("{weights: {dram: 60%, cxl0: 40%}}", {"dram": 0.6, "cxl0": 0.4}),
        ("{weights: {dram: 0.25, cxl0: 75%}}", {"dram": 0.25, "cxl0": 0.75}),
        ("{weights: {dram: 100%, cxl0: 0%}}", {"dram": 1.0}),
        ("{weights: {policy: by_layer, shares: {dram: 60%, cxl0: 40%}}}", {"dram": 0.6, "cxl0": 0.4}),
        ("{weights: {policy: weighted_interleave, weights: {dram: 3, cxl0: 1}}}", {"dram": 0.75, "cxl0": 0.25}),
    ],
)
def test_shares(text: str, shares: dict[str, float]) -> None:
    assert dict(placement(text).shares(TensorClass.WEIGHTS)) == pytest.approx(shares)


def test_ranges_of_layers() -> None:
    found = placement("{weights: [{layers: 0-9, gpu: 100%}, {layers: 10-39, dram: 50%, cxl0: 50%}]}")
    assert dict(found.shares(TensorClass.WEIGHTS, 9)) == {"gpu": 1.0}
    assert dict(found.shares(TensorClass.WEIGHTS, 10)) == {"dram": 0.5, "cxl0": 0.5}
    assert layer_range(7) == (7, 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{weights: {dram: 60%, cxl0: 30%}}", "f.yaml:1: placement.weights: shares sum to 90%, expected 100%; add 10%"),
        ("{weights: {dram: 60%, cxl0: 50%}}", "f.yaml:1: placement.weights: shares sum to 110%, expected 100%; take away 10%"),
        ("{weights: {dram: 120%, cxl0: -20%}}", "f.yaml:1: placement.weights.dram: a share lies between 0% and 100%, got '120%'\nf.yaml:1: placement.weights.cxl0: a share lies between 0% and 100%, got '-20%'"),
        ("{weigths: dram}", "f.yaml:1: placement.weigths: unknown key 'weigths'; did you mean 'weights'?"),
        ("{weights: 3}", "f.yaml:1: placement.weights: expected a tier or shares of tiers, got 3; for example dram, or {dram: 60%, cxl0: 40%}"),
        ("{weights: {layers: 9-2, dram: 100%}}", "f.yaml:1: placement.weights.layers: the range of layers '9-2' is empty; write the smaller number first"),
        ("{weights: {layers: all, dram: 100%}}", "f.yaml:1: placement.weights.layers: expected a range of layers, got 'all'; write it as '0-19'"),
        ("{weights: {policy: weighted_interleave, weights: {dram: 3, cxl0: 1.5}}}", "f.yaml:1: placement.weights.weights.cxl0: expected a whole number of pages from 1 up, got 1.5"),
        ("{weights: {policy: weighted_interleave}}", "f.yaml:1: placement.weights: weighted_interleave needs 'weights'; for example weights: {dram: 3, cxl0: 1}"),
        ("{weights: {shares: {dram: 100%}, cxl0: 100%}}", "f.yaml:1: placement.weights: shares are given twice, by shares and by tiers; keep one"),
            (
                "{optimizer_states: {dram: rest, cxl0: rest}}",
                "f.yaml:1: placement.optimizer_states.cxl0: a second 'rest'; give one of them a share",
            ),
            (
                "{policy: hot_cold, options: {hysteresys: 3}}",
                "f.yaml:1: placement.options.hysteresys: unknown key 'hysteresys'; did you mean 'hysteresis'?",
            ),
            (
                "{policy: hot_cold, options: {scan_period: 1}}",
                "f.yaml:1: placement.options.scan_period: missing unit: got 1; write a time such as '90 ns'",
            ),
            (
                "{policy: hot_cold, options: {hysteresis: 0.5}}",
                "f.yaml:1: placement.options.hysteresis: out of range, got 0.5; at least 1",
            ),
            (
                "{weights: {policy: first_touch, dram: 100%}}",
                "f.yaml:1: placement.weights.dram: first_touch decides the shares itself; "
                "leave one of the two out; options.tiers names the tiers it may use",
            ),
        ("[1]", "f.yaml:1: placement: expected tensor classes and their tiers, got the list [1]; for example {optimizer_states: dram}"),
    ],
)  # fmt: skip
def test_exact_messages(text: str, expected: str) -> None:
    assert fault(text) == expected


def test_share_limits_both_sides() -> None:
    assert placement("{weights: {dram: 99.99995%, cxl0: 0%}}")
    assert "shares sum to" in fault("{weights: {dram: 99.999%, cxl0: 0%}}")


def test_nothing_placed_is_everything_on_the_gpu() -> None:
    empty: Any = placement("{}")
    assert dict(empty.shares(TensorClass.WEIGHTS)) == {"gpu": 1.0}


def test_one_tier_may_take_the_rest() -> None:
    (entry,) = placement("{optimizer_states: {dram: rest, cxl0: 30%}}").entries
    assert dict(entry.shares) == pytest.approx({"dram": 0.7, "cxl0": 0.3})
    assert "sum to 110%" in fault("{optimizer_states: {dram: rest, cxl0: 60%, cxl1: 50%}}")
