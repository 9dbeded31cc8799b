"""Where every tensor class lives once what follows from what is written out: short forms, followers, layer ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sim.placement.plan import Entry, Placement
from sim.records import TensorClass
from sim.workload.footprint.homes import effective_homes
from sim.workload.training import Training

_GPU = {"gpu": 1.0}


def effective_placement(placement: Placement, workload: object) -> Placement:
    """The placement with an entry for every class that the workload keeps away from the GPU.

    For training, master weights and the gradients of parameters that the CPU updates follow the optimizer states.
    """
    if not isinstance(workload, Training):
        return placement
    given = class_shares(placement, workload.model.layers)
    homes = effective_homes(workload, given)
    added = tuple(
        Entry(tensor_class=name, shares=shares) for name, shares in homes.items() if name not in given and dict(shares) != _GPU
    )
    return replace(placement, entries=(*placement.entries, *added))


def class_shares(placement: Placement, num_layers: int) -> dict[TensorClass, Mapping[str, float]]:
    """Share of each placed class per tier, averaged over the layers when entries name ranges of them."""
    shares: dict[TensorClass, Mapping[str, float]] = {}
    for name in dict.fromkeys(entry.tensor_class for entry in placement.entries):
        if all(entry.layers is None for entry in placement.entries if entry.tensor_class == name):
            shares[name] = placement.shares(name)
            continue
        mean: dict[str, float] = {}
        for layer in range(num_layers):
            for tier, share in placement.shares(name, layer).items():
                mean[tier] = mean.get(tier, 0.0) + share / num_layers
        shares[name] = mean
    return shares
