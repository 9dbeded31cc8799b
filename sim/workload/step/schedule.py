"""Order of micro-batch passes on one pipeline stage: 1F1B, interleaved 1F1B, or plain accumulation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple


class Turn(NamedTuple):
    """One pass of one micro-batch through one model chunk of a stage."""

    direction: Literal["forward", "backward"]
    micro_batch: int
    chunk: int


def _virtual(index: int, stages: int, chunks: int, *, backward: bool) -> tuple[int, int]:
    """Micro-batch and chunk of the `index`-th pass of interleaved 1F1B (Narayanan et al., SC21, section 2.2)."""
    group, inside = divmod(index, stages * chunks)
    chunk, offset = divmod(inside, stages)
    return group * stages + offset, chunks - 1 - chunk if backward else chunk


def turns(stage: int, stages: int, chunks: int, micro_batches: int) -> Iterator[Turn]:
    """Passes of `stage` in execution order; every micro-batch passes every chunk forward once and backward once."""
    total = micro_batches * chunks
    deepest = (stages - stage - 1) * 2 + (chunks - 1) * stages if chunks > 1 else stages - stage - 1
    warm_up = min(deepest, total)
    for index in range(warm_up):
        yield Turn("forward", *_virtual(index, stages, chunks, backward=False))
    for index in range(warm_up, total):
        yield Turn("forward", *_virtual(index, stages, chunks, backward=False))
        yield Turn("backward", *_virtual(index - warm_up, stages, chunks, backward=True))
    for index in range(total - warm_up, total):
        yield Turn("backward", *_virtual(index, stages, chunks, backward=True))
