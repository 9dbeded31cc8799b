"""Page-locked buffers through which optimizer states and gradients pass on their way to storage."""

from __future__ import annotations

from sim.workload.footprint.counts import layer_tensors, sub_groups
from sim.workload.training import Training

#: bytes of a swapped gradient: DeepSpeed casts to fp32 before it writes (stage3.py, partition_grads)
SWAPPED_GRADIENT_BYTES = 4.0
#: share of a buffer that tensors of one dimension, which are counted to the matrices here, may exceed it
_SMALL = 1e-3


class SwapBuffers:
    """Fills the buffers of one rank with gradients, tensor by tensor (DeepSpeed async_swapper.py).

    A buffer is as large as the largest sub-group and takes whole tensors; a full one is written while the next is filled.
    When none is free, the backward pass waits until all are written.
    """

    def __init__(self, training: Training, stage: int, sub_group_elements: int) -> None:
        offload = training.offload
        largest = max(sub_groups(training, stage, offload.sub_group_elements or sub_group_elements))
        self.size = min(largest, offload.buffer_elements or largest)
        self.count = offload.num_state_buffers
        tensors = layer_tensors(training, stage)
        #: a layer's tensors in the order of its backward pass, as shares of it
        self.shares = [elements / sum(tensors) for elements in reversed(tensors)] or [1.0]
        self._room, self._free = self.size, self.count - 1

    def takes(self, elements: float) -> bool:
        """Whether the gradients of a layer, `elements` of this rank, have to wait for buffers to be written."""
        waits = False
        for share in self.shares:
            left = elements * share
            while left > 0:
                piece = min(left, self.size)  # a tensor larger than a buffer is cut
                left -= piece
                if piece > self._room + _SMALL * self.size:
                    waits = waits or self._free == 0
                    self._free = self.count - 1 if self._free == 0 else self._free - 1
                    self._room = self.size
                self._room -= piece
        return waits
