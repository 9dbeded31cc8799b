"""Swap buffers take whole tensors; a full set holds the backward pass."""

from sim.workload.shape import ModelShape
from sim.workload.step.swap_buffers import SwapBuffers
from sim.workload.training import Offload, Optimizer, Parallelism, Training

#: a layer of 8 + 2 matrices' worth: q, k, v, o of 64 x 64 and two of 64 x 256
SHAPE = ModelShape(name="small", layers=4, hidden=64, heads=4, kv_heads=4, ffn=256, vocabulary=1000, mlp="gelu")
LAYER = 4 * 64 * 64 + 2 * 64 * 256


def _buffers(count: int, limit: int) -> SwapBuffers:
    offload = Offload(state_buffer_count=count, sub_group_elements=limit)
    training = Training(
        model=SHAPE, framework="deepspeed-zero", parallelism=Parallelism(zero_stage=3), optimizer=Optimizer(), offload=offload
    )
    return SwapBuffers(training, 0, limit)


def test_a_buffer_is_as_large_as_the_largest_sub_group():
    assert _buffers(4, LAYER).size >= LAYER


def test_layers_wait_when_all_buffers_are_full_and_not_before():
    buffers = _buffers(3, 1000 * 64 + 1)  # the embedding and all of a layer: one buffer
    room = int(buffers.size // LAYER) * 3
    taken = 0
    while not buffers.takes(LAYER):
        taken += 1
        assert taken <= room
    assert taken >= 3 * (buffers.size // LAYER - 1)
    assert not buffers.takes(LAYER)  # they were emptied


def test_a_tensor_larger_than_a_buffer_is_cut():
    buffers = _buffers(2, 10)
    buffers.size = buffers._room = 100.0
    assert buffers.takes(100_000.0)
