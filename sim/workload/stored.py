"""Bytes of one stored weight by what it belongs to: experts alone in a narrow format, embeddings and heads in 16 bits."""

from __future__ import annotations

from typing import NamedTuple

from sim.workload.formats import WEIGHT_BYTES
from sim.workload.frameworks.inference import INFERENCE_PROFILES
from sim.workload.inference import Inference
from sim.workload.shapes import ParameterCount

#: formats that published mixtures use for their routed experts only; the rest is 16 bits, in ggml's files q8_0
#: (gpt-oss: model card, and its 11.3 and 59.0 GiB files)
_EXPERTS_ONLY = frozenset({"mxfp4"})


#: formats that replace the matrices of blocks only (bitsandbytes, AWQ, GPTQ): always, and by frameworks that load such files
_BLOCKS_ONLY = frozenset({"nf4"})
_BLOCKS_ONLY_FILES = frozenset({"nf4", "int4", "int8"})


class StoredWeight(NamedTuple):
    """Bytes of a routed expert's weight, of one of the embedding, of the head, and of any other."""

    routed: float
    other: float
    embedding: float
    head: float

    def size(self, count: ParameterCount) -> float:
        """Bytes of a whole model."""
        rest = count.total - count.routed - count.embedding - count.head
        ends = count.embedding * self.embedding + count.head * self.head
        return count.routed * self.routed + ends + rest * self.other


def stored_weight(inference: Inference) -> StoredWeight:
    """How the weights of this job are stored."""
    size, wide = WEIGHT_BYTES[inference.weights], WEIGHT_BYTES["bf16"]
    profile = INFERENCE_PROFILES.get(inference.framework)
    if inference.model.experts and inference.weights in _EXPERTS_ONLY:
        is_ggml = profile is not None and profile.gemm_variant.startswith("ggml")
        other = WEIGHT_BYTES["q8_0"] if is_ggml else wide
        return StoredWeight(size, other, other, other)
    if inference.weights in (_BLOCKS_ONLY_FILES if profile is not None and profile.loads_quantised else _BLOCKS_ONLY):
        is_tied = inference.model.tied_embeddings
        return StoredWeight(size, size, wide, size if profile is not None and profile.quantises_head and not is_tied else wide)
    return StoredWeight(size, size, size, size)
