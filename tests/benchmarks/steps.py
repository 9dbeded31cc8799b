"""Synthetic training steps for the engine's benchmark: ten operations per GPU, layer and micro-batch.

One host: each GPU has its HBM, a PCIe link (two directions) and a fabric port; all share the host memory and its cores.
Weights and activations come from host memory, gradients go there, the host updates. Same amounts on every rank ("identical") or
jittered by +-2.5 % ("jittered": no ties, the worst case of an unfolded replay).
"""

from __future__ import annotations

import random

from sim.records import INFINITY, Channel, Kind, Operation, Program, Stream

HBM, PCIE, FABRIC, DRAM_PER_GPU, CORES_PER_GPU = 2e12, 25e9, 300e9, 30e9, 16.0
LAYER_BYTES, ACTIVATION_BYTES = 400e6, 64e6


def step(
    num_gpus: int, num_layers: int, *, num_micro_batches: int = 1, jitter: float = 0.0, seed: int = 0, multiplicity: int = 1
) -> Program:
    """A step of `num_gpus` written-out ranks, each standing for `multiplicity` identical ones."""
    draw = random.Random(seed)
    host = num_gpus * multiplicity
    channels = [
        Channel(name="dram", bandwidth_per_s=DRAM_PER_GPU * host),
        Channel(name="cores", bandwidth_per_s=CORES_PER_GPU * host, unit="cores"),
    ]
    streams, operations = [], []
    for gpu in range(num_gpus):
        for name, bandwidth in (("hbm", HBM), ("down", PCIE), ("up", PCIE), ("fabric", FABRIC)):
            channels.append(Channel(name=f"{name}{gpu}", bandwidth_per_s=bandwidth, multiplicity=multiplicity))
        streams += [
            Stream(name=f"g{gpu}.{role}", multiplicity=multiplicity) for role in ("compute", "h2d", "d2h", "net", "cpu")
        ]
        operations += _rank(gpu, num_gpus, num_layers, num_micro_batches, draw, jitter)
    return Program(name="synthetic", channels=tuple(channels), tiers=(), streams=tuple(streams), operations=tuple(operations))


def _rank(
    gpu: int, num_gpus: int, num_layers: int, num_micro_batches: int, draw: random.Random, jitter: float
) -> list[Operation]:
    hbm, neighbour = f"hbm{gpu}", (gpu + 1) % num_gpus
    down = ((f"down{gpu}", 1.0), ("dram", 1.0), (hbm, 1.0))
    up = ((f"up{gpu}", 1.0), ("dram", 1.0), (hbm, 1.0))
    net = ((f"fabric{gpu}", 1.0), (hbm, 2.0))
    flow = {"h2d": down, "d2h": up, "net": net, "compute": ((hbm, 1.2e12),), "cpu": (("dram", 1.0), ("cores", 1e-9))}
    sequence = dict.fromkeys(flow, 0)
    rows: list[Operation] = []

    def add(role: str, name: str, work: float, *after: str) -> str:
        amount = work * (1.0 + jitter * (2.0 * draw.random() - 1.0)) if jitter else work
        rows.append(
            Operation(
                id=f"g{gpu}.{name}",
                kind=Kind.COMPUTE if role == "compute" else Kind.TRANSFER,
                stream=f"g{gpu}.{role}",
                sequence=sequence[role],
                after=after,
                work=amount,
                uses=flow[role],
                rate_cap=1.0 if role == "compute" else INFINITY,
                latency_s=10e-6 if role != "compute" else 0.0,
            )
        )
        sequence[role] += 1
        return f"g{gpu}.{name}"

    for micro in range(num_micro_batches):
        for layer in range(num_layers):
            at = f"{micro}.{layer}"
            fetch = add("h2d", f"fetch.{at}", LAYER_BYTES / 8)
            gather = add("net", f"gather.{at}", LAYER_BYTES, fetch, f"g{neighbour}.fetch.{at}")
            forward = add("compute", f"forward.{at}", 9e-3, gather)
            add("d2h", f"keep.{at}", ACTIVATION_BYTES, forward)
        for layer in reversed(range(num_layers)):
            at = f"{micro}.{layer}"
            load = add("h2d", f"load.{at}", ACTIVATION_BYTES, f"g{gpu}.keep.{at}")
            again = add("net", f"again.{at}", LAYER_BYTES, load)
            backward = add("compute", f"backward.{at}", 18e-3, again)
            scatter = add("net", f"scatter.{at}", LAYER_BYTES, backward)
            flush = add("d2h", f"flush.{at}", LAYER_BYTES / 8, scatter, f"g{neighbour}.backward.{at}")
            add("cpu", f"update.{at}", LAYER_BYTES * 7 / 8, flush)
    return rows
