"""Where every tensor class lives once what follows from what is written out: short forms, followers, layer ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

from sim.placement.plan import Entry, Placement
from sim.records import TensorClass
from sim.workload.footprint.homes import effective_homes
from sim.workload.inference import Inference
from sim.workload.training import Training

_GPU = {"gpu": 1.0}


def effective_placement(placement: Placement, workload: object) -> Placement:
    """The placement with an entry for every class that the workload keeps away from the GPU.

    For training, master weights and the gradients of parameters that the CPU updates follow the optimizer states. A class
    that is placed by ranges of layers gets an entry for the class as a whole too: the mean of its layers.
    """
    if not isinstance(workload, (Training, Inference)):
        return placement
    num_layers = workload.model.layers
    placement = whole_layers(placement, num_layers)
    entries = _with_means(placement, num_layers)
    if isinstance(workload, Training):
        given = class_shares(placement, num_layers)
        homes = effective_homes(workload, given)
        entries += [
            Entry(tensor_class=name, shares=shares)
            for name, shares in homes.items()
            if name not in given and dict(shares) != _GPU
        ]
    return Placement(entries=tuple(entries))


def class_shares(placement: Placement, num_layers: int) -> dict[TensorClass, Mapping[str, float]]:
    """Share of each placed class per tier, averaged over the layers when entries name ranges of them."""
    placement = whole_layers(placement, num_layers)
    shares: dict[TensorClass, Mapping[str, float]] = {}
    for name in dict.fromkeys(entry.tensor_class for entry in placement.entries):
        if not _is_by_layers(placement, name):
            shares[name] = placement.shares(name)
            continue
        mean: dict[str, float] = {}
        for layer in range(num_layers):
            for tier, share in placement.shares(name, layer).items():
                mean[tier] = mean.get(tier, 0.0) + share / num_layers
        shares[name] = mean
    return shares


def state_edges(placement: Placement, num_layers: int) -> tuple[int, ...]:
    """Layers whose optimizer states lie elsewhere than those of the layer before; none where all layers are alike."""
    placed = whole_layers(placement, num_layers)
    if not _is_by_layers(placed, TensorClass.OPTIMIZER_STATES):
        return ()
    homes = [placed.shares(TensorClass.OPTIMIZER_STATES, layer) for layer in range(num_layers)]
    return tuple(layer for layer in range(1, num_layers) if homes[layer] != homes[layer - 1])


def whole_layers(placement: Placement, num_layers: int) -> Placement:
    """The placement with every entry under by_layer written as ranges of layers: the first tier holds the first layers."""
    if all(entry.policy != "by_layer" for entry in placement.entries):
        return placement
    entries: list[Entry] = []
    for entry in placement.entries:
        if entry.policy != "by_layer":
            entries.append(entry)
            continue
        first, last = entry.layers or (0, num_layers - 1)
        begin, reached = first, 0.0
        for tier, share in entry.shares.items():
            reached += share
            end = first + round(reached * (last + 1 - first))
            if end > begin:
                layers = (begin, end - 1)
                entries.append(replace(entry, shares={tier: 1.0}, policy="interleave", layers=layers))
            begin = max(begin, end)
    return replace(placement, entries=tuple(entries))


def _is_by_layers(placement: Placement, name: TensorClass) -> bool:
    return any(entry.layers is not None for entry in placement.entries if entry.tensor_class == name)


def _with_means(placement: Placement, num_layers: int) -> list[Entry]:
    """All entries; those of a class placed by layers become its mean, then one entry per run of equal layers."""
    entries = [entry for entry in placement.entries if not _is_by_layers(placement, entry.tensor_class)]
    for name, mean in class_shares(placement, num_layers).items():
        if not _is_by_layers(placement, name):
            continue
        entries.append(Entry(tensor_class=name, shares=mean))
        by_layer = [(layer, dict(placement.shares(name, layer))) for layer in range(num_layers)]
        for shares, run in groupby(by_layer, key=lambda item: item[1]):
            layers = [layer for layer, _shares in run]
            entries.append(Entry(tensor_class=name, shares=shares, layers=(layers[0], layers[-1])))
    return entries
