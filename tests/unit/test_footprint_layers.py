"""Which layers' activations move to the host, as written in a scenario."""

import pytest

from sim.errors import InputError
from sim.workload.footprint.residency import activation_layers
from sim.workload.shapes import builtin
from sim.workload.training import Offload, Training


def layers(text):
    return activation_layers(Training(model=builtin("llama-2-7b"), offload=Offload(activation_layers=text)))


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, range(0)), ("none", range(0)), ("all", range(32)), ("7", range(7, 8)), ("0-15", range(16)), ("0-31", range(32))],
)
def test_layers_are_read(text, found):
    assert layers(text) == found


@pytest.mark.parametrize("text", ["0-32", "32", "5-3", "some", "-1", "1-2-3"])
def test_other_texts_are_refused(text):
    with pytest.raises(InputError, match="of a model with layers 0 to 31; write 'none', 'all', one layer such as '7'"):
        layers(text)
