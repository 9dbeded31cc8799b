"""Our own numbers of shipped scenarios: a change that moves one is meant, and says so by rewriting `own_numbers.json`.

Rewrite with `python tests/regression/test_own_numbers.py` from the root of the checkout. Whether the numbers are true is the
business of tests/validation.
"""

import json
from pathlib import Path

import pytest

from sim.config import load_scenario
from sim.experiment import run

KNOWN = Path(__file__).with_name("own_numbers.json")
SCENARIOS = (
    "a12-reference-box", "a13-training-block", "a17-cxl-pool", "hours-energy-money", "published-13b-four-gpus",
    "serve-with-streamed-weights", "two-jobs-one-pool",
)  # fmt: skip


def numbers_of(name: str) -> dict[str, float]:
    """Seconds of the step or answer, and the peak of each tier in bytes."""
    summary = run(load_scenario(name).resolve(), with_penalty=False).summary
    return {"seconds": summary.step_time_s} | {tier: use.peak_bytes for tier, use in sorted(summary.tiers.items())}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_shipped_scenario_gives_its_known_numbers(name):
    assert numbers_of(name) == pytest.approx(json.loads(KNOWN.read_text(encoding="utf-8"))[name], rel=1e-6)


if __name__ == "__main__":
    KNOWN.write_text(json.dumps({name: numbers_of(name) for name in SCENARIOS}, indent=1) + "\n", encoding="utf-8")
