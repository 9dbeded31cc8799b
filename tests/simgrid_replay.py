"""Replays chains of transfers in SimGrid's plain max-min model; run by the Python that has the Debian package.

Reads {"links": [bandwidth], "chains": [[{"size", "cap", "latency", "links"}]]} and writes the end times of each chain.
A flow's cap is a private link; its sharing weight is 1 / latency, which is how CM02 shares a link between flows.
"""

import json
import sys

import simgrid

CONFIGURATION = (
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "network/weight-S:0",
    "maxmin/precision:1e-12",
    "surf/precision:1e-12",
)


def main() -> None:
    system = json.load(sys.stdin)
    engine = simgrid.Engine(["simgrid_replay", *(f"--cfg={item}" for item in CONFIGURATION), "--log=root.thres:critical"])
    zone = simgrid.NetZone.create_full_zone("zone")
    shared = [zone.create_link(f"shared{i}", [bandwidth]).seal() for i, bandwidth in enumerate(system["links"])]
    ends: list[list[float]] = [[] for _ in system["chains"]]

    def run_chain(number: int, pairs: list, sizes: list) -> None:
        for (source, target), size in zip(pairs, sizes, strict=True):
            simgrid.Comm.sendto(source, target, size)
            ends[number].append(simgrid.Engine.clock)

    home = zone.create_host("home", [1.0]).seal()
    for number, chain in enumerate(system["chains"]):
        pairs = []
        for i, flow in enumerate(chain):
            source, target = (zone.create_host(f"{end}.{number}.{i}", [1.0]).seal() for end in ("from", "to"))
            private = zone.create_link(f"cap.{number}.{i}", [flow["cap"]]).set_latency(flow["latency"]).seal()
            path = [simgrid.LinkInRoute(link) for link in (private, *(shared[c] for c in flow["links"]))]
            zone.add_route(source.netpoint, target.netpoint, None, None, path, False)
            pairs.append((source, target))
        simgrid.Actor.create(f"chain{number}", home, run_chain, number, pairs, [flow["size"] for flow in chain])
    zone.seal()
    engine.run()
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    main()
