"""What a profile says of a training framework: its switches and the few constants that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

#: traffic to quantise one GEMM input element: read 2 bytes, write the row-wise and the transposed copy (and scales)
_CAST_BYTES = {"fp8": 4.0, "mxfp8": 8.5, "nvfp4": 3.1}

Graphs = Literal["none", "dense", "whole"]
#: CPU and GPU time of a kernel inside a CUDA graph (assumed 2 to 6 us)
GRAPH_LAUNCH_S = 6e-6
#: share of the expert exchange that runs beside the other half of the batch, where a framework or the user overlaps them
HIDDEN_EXCHANGE = 0.8
#: the same of the tensor-parallel exchanges: Transformer Engine's userbuffers, as Megatron-Core's published recipes use them
HIDDEN_TENSOR = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one framework does in a step. Times in seconds, sizes in elements or bytes as named."""

    name: str
    source: str
    # kernels
    elementwise_traffic: float = 1.0  # multiplies the minimal traffic of norms, residuals, activations (unfused eager > 1)
    recomputes_operations: bool = False  # selective recomputation keeps every other GEMM and the attention core's output
    compiled_traffic: float = 0.7  # the same when the compiler fuses
    has_fused_blocks: bool = False  # RMS norm, rotary embedding and gate are one kernel each without a compiler
    softmax_traffic: float = 1.0  # the same of the softmax of eager attention
    loss_traffic: float = 1.0  # the same of the loss
    cast_bytes: Mapping[str, float] = field(default_factory=lambda: dict(_CAST_BYTES))  # per quantised GEMM input, by precision
    dispatch_s_per_kernel: float = 6e-6  # CPU time to launch one kernel; hidden unless the GPU is faster
    #: what is launched as CUDA graphs: nothing, all but what the number of routed tokens decides (the experts, and the half
    #: of the routing that follows the exchange), or whole iterations
    cuda_graphs: Graphs = "none"
    small_kernels_per_layer: float = 12.0  # forward launches of a layer besides GEMMs and attention; backward twice
    routing_kernels: float = 80.0  # the same of a mixture of experts: router, permutation, dispatch and their undoing
    kernels_per_expert: float = 6.0  # and of each local expert
    has_fused_experts: bool = False  # biases, clamps and activation of the experts are part of their grouped GEMMs
    has_fused_adapters: bool = False  # an adapter's dropout, scaling and addition cost no pass over the activations
    attention_version: str = ""  # kernel generation; "" = the part's default
    # data parallel
    overlap_gradient_reduce: bool = True
    overlap_parameter_gather: bool = False
    stage2_gathers_each: bool = False  # FSDP's SHARD_GRAD_OP: weights are gathered for every micro-batch
    reduce_dtype_bytes: float = 2.0
    bucket_elements: int = 200_000_000
    prefetch_layers: int = 1  # ZeRO-3 / FSDP: layers gathered ahead
    collective_compute_share: float = 0.15  # of the multiprocessors, while a collective runs beside compute
    # model parallel: share of the communication that is hidden behind the kernels
    send_fixed_s: float = 0.0  # host time of one send between stages
    is_send_blocking: bool = False  # the sender computes again only when its send is done
    tensor_overlap: float = 0.0
    gathers_quantised: bool = False  # sequence parallelism gathers inputs after they are quantised; scatters stay 16-bit
    context_overlap: float = 0.8
    attends_in_rings: bool = False  # context parallelism: one kernel per block of the ring, merged in fp32 by others
    expert_overlap: float = 0.0
    exchanges_by_node: bool = False  # DeepEP and its like: a token crosses the network once per node, not once per expert
    fuses_routing: bool = False  # tokens are permuted and quantised by the exchange itself
    # ZeRO hooks
    hook_forward_s: float = 0.0  # per dense layer; a mixture of experts has hooks on every expert's modules; compiled: none
    hook_backward_s: float = 0.0  # the same
    gathers_experts: bool = False  # ZeRO 3: experts are gathered one by one when they are called, not ahead
    step_fixed_s: float = 0.0
    micro_batch_fixed_s: float = 0.0
    # offload
    copy_share: float = 1.0  # of a copy's own rate that copies inside a step reach
    overlap_gradient_copy: bool = False
    inline_gradient_copy: bool = False  # ZeRO 1 and 2: not overlapped means in the GPU's order, without the host waiting
    flushed_gradient_bytes: float = 0.0  # per element of a copy that the host does not cast; 0 = as computed with
    holds_gradient_copy: bool = False  # ZeRO 3: gradients that leave are reduced before the next layer is computed again, and
    # an overlapped copy ends before its gradients exist: both are on one stream
    late_gradient_bytes: float = 0.0  # per element of gradients that leave for the CPU's update only, and of the weights that
    # return; 0 = gradients leave in the backward pass
    pins_activations: bool = True  # activation checkpoints that leave the GPU go to page-locked memory
    overlap_activation_copy: bool = False  # activation checkpoints move to the host beside compute
    overlap_update: bool = False  # CPU update of a sub-group overlaps the copies of its neighbours
    pins_returned_weights: bool = True  # updated weights return from page-locked memory
    host_cast_bytes: float = 0.0  # host traffic per element of updated weights whose copy back blocks: PyTorch converts there;
    # where it does not block, fp32 crosses the link and the GPU converts (Copy.cu)
    always_unscales: bool = False  # gradients are divided by the loss scale before the update, whatever it is
    sub_group_elements: int = 1_000_000_000
    host_gradient_bytes_per_element: float = 10.0  # host traffic of a blocking gradient flush: 16 bits read,
    # fp32 written and read for ownership
    update_bytes_per_element: float = 28.0  # CPU optimizer: host traffic, read and write
    fused_update_bytes_per_element: float = 0.0  # the same below ZeRO 3, where differently; its copies then overlap
    update_write_share: float = 0.43
    is_updated_by_torch: bool = False  # the CPU optimizer is torch's: one pass per operation unless it is asked to fuse
    threads_per_rank: int = 0  # of the host where several processes run (OMP_NUM_THREADS); 0 = the rank's share of the cores
    binds_cores: bool = True  # host threads stay near their memory; `offload.cores_bound` overrides it
    gpu_update_bytes_per_element: float = 30.0
    #: field -> tables of measurements ("publication" or "publication/table") that it was fitted on
    fitted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: field -> what its siblings do, where it is held out and that is not the default of a plain framework
    priors: Mapping[str, float] = field(default_factory=dict)
