"""Bytes of one stored weight by what it belongs to: mixtures whose experts alone are in a narrow format."""

from __future__ import annotations

from typing import NamedTuple

from sim.workload.formats import WEIGHT_BYTES
from sim.workload.frameworks.inference import INFERENCE_PROFILES
from sim.workload.inference import Inference
from sim.workload.shapes import ParameterCount

#: formats that published mixtures use for their routed experts only; the rest is 16 bits, in ggml's files q8_0
#: (gpt-oss: model card, and its 11.3 and 59.0 GiB files)
_EXPERTS_ONLY = frozenset({"mxfp4"})


class StoredWeight(NamedTuple):
    """Bytes of a routed expert's weight, and of any other."""

    routed: float
    other: float

    def size(self, count: ParameterCount) -> float:
        """Bytes of a whole model."""
        return count.routed * self.routed + (count.total - count.routed) * self.other


def stored_weight(inference: Inference) -> StoredWeight:
    """How the weights of this job are stored."""
    size = WEIGHT_BYTES[inference.weights]
    if not inference.model.experts or inference.weights not in _EXPERTS_ONLY:
        return StoredWeight(size, size)
    profile = INFERENCE_PROFILES.get(inference.framework)
    is_ggml = profile is not None and profile.gemm_variant.startswith("ggml")
    return StoredWeight(size, WEIGHT_BYTES["q8_0" if is_ggml else "bf16"])
