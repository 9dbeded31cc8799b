"""Collectives alone: time by size on one level of links, for rings, trees and in-switch reduction.

T = A + X/B + 2 g sqrt(A X/B): A the latency of all hops, X bytes that cross the slowest link of one rank, B its rate.
The last term is the cost of cutting X into chunks that pipeline over the hops (g = 1 for the best fixed chunk).
Fitted on nccl-tests tables of V100, A100, H100, H200, B200, GB200 and MI300X (docs/model.md, Collectives): 6 / 21 %. Not
modelled: protocol switches (LL, LL128) below 1 MB beyond their floor.
"""

from __future__ import annotations

from math import sqrt

from sim.held_out import Fitted

_RINGS = ("vtrain/v100-x8", "vtrain/a100-x4", "vtrain/a100-x8", "azure-ai-benchmarking/a100-x8")
_SWITCHES = ("azure-ai-benchmarking/h100-x8", "stas-ml-engineering/h200-x8", "gke-a4/b200-x8")
_MESHES = ("hisohara-ai-scripts/mi300x-x8",)
#: seconds per hop of a collective, kernel launch and handshake included; without the fit: data
#: and a flag, each across a link in 0.7 us (pointer chase between GPUs), and a poll
HOP_S = Fitted(2.1e-6, 2e-6, (*_RINGS, *_SWITCHES))
#: seconds of a small all-reduce in which every rank reads the buffers of all others over GPU links, inside the step's own
#: kernels: fit over 7B and 70B decodes on 2 to 8 A100 (gpt-fast, README at 0f925b5); +-50 %
ONE_SHOT_S = 4e-6
#: chunking loss g by algorithm; without the fits: the best fixed chunk
_CHUNKING = {
    "ring": Fitted(0.70, 1.0, _RINGS),
    "switch": Fitted(0.45, 1.0, _SWITCHES),
    "mesh": Fitted(0.50, 1.0, _MESHES),
    "network": Fitted(1.1, 1.0, ("cscs-docs/alps-2n",)),
}
#: times that the (n - 1) / n of a buffer that a rank lacks passes the link
_TURNS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def ring_volume(kind: str, num_ranks: int) -> float:
    """Bytes that each rank sends per byte of the buffer (the gathered one of an all-gather); 1 for a broadcast."""
    return _TURNS[kind] * (num_ranks - 1) / num_ranks if kind in _TURNS else 1.0


def nodes_reached(num_nodes: int, num_copies: float, node_share: float = 1.0) -> float:
    """Expected number of nodes that `num_copies` copies of a token go to, any of that share of the nodes alike."""
    allowed = max(1.0, num_nodes * node_share)
    return float(allowed * (1.0 - (1.0 - 1.0 / allowed) ** num_copies))


def switch_volume(num_ranks: int) -> float:
    """The same when the switch adds: a rank's whole buffer up once, and the sum of its own slice once more."""
    return 1.0 + 1.0 / num_ranks


def bus_factor(kind: str, num_ranks: int) -> float:
    """What nccl-tests multiplies S/T by to call it bus bandwidth."""
    return ring_volume(kind, num_ranks)


def chunking(algorithm: str) -> float:
    """The loss g of :func:`pipelined` for rings, in-switch reduction and the network between nodes."""
    return _CHUNKING[algorithm].get()


def hops_latency(num_ranks: int, hop_s: float = 0.0) -> float:
    """Latency A of a ring over ranks (or nodes), seconds; measured the same for every kind of collective."""
    return 2 * (num_ranks - 1) * (hop_s or HOP_S.get())


def tree_latency(num_ranks: int, hop_s: float = 0.0) -> float:
    """Latency of a reduction up a binary tree and a broadcast down it, seconds."""
    return 2 * (hop_s or HOP_S.get()) * max(1, (num_ranks - 1).bit_length())


def pipelined(latency_s: float, transfer_s: float, chunking: float) -> float:
    """Seconds of a chunked pipeline: A + X/B + 2 g sqrt(A X/B)."""
    return latency_s + transfer_s + 2 * chunking * sqrt(latency_s * transfer_s)
