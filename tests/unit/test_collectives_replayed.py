"""A collective whose ranks all run at once takes what its law says: no link is charged to both of its ends in full."""

import pytest

from sim.config import load_machine
from sim.engine import replay
from sim.laws.collectives import bus_factor
from sim.placement.plan import Placement
from sim.program import lower
from sim.program.collectives import alone_time, collective
from sim.study.bench import measure
from sim.workload.shape import ModelShape
from sim.workload.step import generate
from sim.workload.training import Parallelism, Training

SIZE = 2.0**30
MACHINES = ["dgx-1-v100", "mi300x-8x", "mi250x-node", "gh200-quad", "h100-pcie-2x", "dgx-a100", "dgx-h100"]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_all_ranks_at_once_take_the_time_of_the_law(machine, kind):
    found = load_machine(machine)
    members = [(0, gpu) for gpu in found.gpus()]
    replayed = measure(found, "collective", {"collective": kind, "size": SIZE, "ranks": len(members)})
    assert replayed["time"] == pytest.approx(alone_time(found, kind, SIZE, members), rel=1e-6)
    assert replayed["bus_bandwidth"] == pytest.approx(bus_factor(kind, len(members)) * SIZE / replayed["time"])


@pytest.mark.parametrize("machine", ["dgx-1-v100", "mi300x-8x"])
def test_ranks_of_a_mesh_charge_each_link_once(machine):
    """Both ends of a link pay half of what it carries, so that all charges add up to what one direction moves."""
    found = load_machine(machine)
    members = [(0, gpu) for gpu in found.gpus()]
    charged: dict[str, float] = {}
    for me in range(len(members)):
        for channel, cost in collective(found, "all_gather", SIZE, members, me).uses:
            charged[channel] = charged.get(channel, 0.0) + cost
    for edge in found.edges:
        if {edge.source, edge.target} <= set(found.gpus()):
            out = [other for other in found.edges if other.source == edge.source and other.target in found.gpus()]
            share = edge.raw_bytes_per_s / sum(other.raw_bytes_per_s for other in out)
            cost = dict(edge.costs)["collective"] * share * (len(members) - 1) / len(members)
            assert charged[edge.channels[0]] == pytest.approx(cost)


def test_folded_and_unfolded_steps_agree_on_a_mesh():
    shape = ModelShape(name="small", layers=4, hidden=512, heads=8, ffn=2048, vocabulary=4000, mlp="gelu")
    step = generate(Training(model=shape, sequence_length=512, batch_size=2, parallelism=Parallelism(data=8, zero_stage=3)), {})
    machine = load_machine("mi300x-8x")
    folded, unfolded = (lower(step, machine, Placement(), is_folded=is_folded) for is_folded in (True, False))
    assert replay(folded).makespan_s == pytest.approx(replay(unfolded).makespan_s, rel=1e-9)


@pytest.mark.parametrize(("machine", "slower"), [("polaris", 0.16 / 0.107), ("dgx-a100", 1.0)])
def test_communicators_of_part_of_a_node_share_its_sockets_less_well(machine, slower):
    """Two groups of half of each node's GPUs, all at once, against one group of all of them; 3/4 of the bytes each."""
    found = load_machine(machine)
    gpus = found.gpus()[:4]
    whole = collective(found, "all_gather", SIZE, [(node, gpu) for node in (0, 1) for gpu in found.gpus()], 0)
    part = collective(found, "all_gather", SIZE, [(node, gpu) for node in (0, 1) for gpu in gpus[::2]], 0)

    def on_adapter(flow, num_ranks):
        return sum(cost for channel, cost in flow.uses if "network" in channel and "nic0->" in channel) * num_ranks

    num = len(found.gpus())
    assert on_adapter(part, 2) / on_adapter(whole, num) == pytest.approx(slower * (3 / 4) / (1 - 1 / (2 * num)))


def test_an_all_to_all_has_no_ring_of_hops():
    """Pairs exchange by themselves: twice the ranks carry nearly the same bytes each and wait no longer for each other."""
    machine = load_machine("gb200-nvl72")
    times = [alone_time(machine, "all_to_all", 256e6, [(0, f"gpu{rank}") for rank in range(num)]) for num in (16, 32, 64)]
    assert times[2] < 1.1 * times[0]
    wire = 256e6 * 31 / 32 / 900e9  # NVLink 5, one way
    assert 1.0 < times[1] / wire < 1.5


def test_a_mesh_names_its_links_in_rank_order():
    """The order of a result's channels is that of the ranks, whatever the order in which Python hashes names."""
    found = load_machine("mi300x-8x")
    gpus = found.gpus()
    uses = collective(found, "all_gather", SIZE, [(0, gpu) for gpu in gpus], 0).uses
    targets = [
        edge.target for channel, _cost in uses for edge in found.edges if edge.channels[0] == channel and edge.source == gpus[0]
    ]
    assert targets == [gpu for gpu in gpus if gpu in targets]
    assert len(targets) == len(gpus) - 1
