"""Any damage to a config.json is refused with a fault, never with an exception of Python's."""

from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.workload.shapes import from_huggingface, parameters

MODELS = yaml.safe_load((Path(__file__).parents[1] / "validation" / "published_models.yaml").read_text())
VALUES = st.sampled_from([None, True, -1, 0, 0.5, 1e308, "x", "8", [], [1, 2], {}, {"a": 1}, float("nan"), 10**30, [None]])
KEYS = ("quantization_config", "layer_types", "sliding_window", "moe_layer_freq", "mlp_only_layers", "n_group", "architectures")


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(MODELS)), key=st.integers(0, 30), value=VALUES)
def test_a_damaged_configuration_is_read_or_refused(name: str, key: int, value: Any) -> None:
    config = dict(MODELS[name]["config"])
    keys = (*config, *KEYS)
    config[keys[key % len(keys)]] = value
    try:
        total = parameters(from_huggingface(config)).total
    except InputError:
        return
    assert total > 0
