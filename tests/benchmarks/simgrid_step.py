"""Replays a synthetic step in SimGrid, and writes how long that took; run by the Python that has the Debian package.

Reads {"links": {name: bandwidth}, "operations": [[stream, size, latency, links, after]]} (streams in order), and writes
{"cpu_s", "makespan_s"}. One actor starts what is ready and waits for
whatever ends first, so besides SimGrid's C++ core the figure contains its Python binding, as a user of that has it.
"""

from __future__ import annotations

import json
import sys
import time

import simgrid

CONFIGURATION = ("network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "network/weight-S:0")


class Step:
    """The operations, who waits for whom, and the routes of the streams."""

    def __init__(self, system: dict, zone: simgrid.NetZone) -> None:
        self.operations = system["operations"]
        self.waits, self.successors = [0] * len(self.operations), [[] for _ in self.operations]
        self.ready: list[int] = []
        links = {name: zone.create_link(name, [bandwidth]).seal() for name, bandwidth in system["links"].items()}
        self.route: dict[str, tuple] = {}
        last: dict[str, int] = {}
        for i, (stream, _, latency_s, names, after) in enumerate(self.operations):
            if stream not in self.route:
                source, target = (zone.create_host(f"{end}.{stream}", [1.0]).seal() for end in ("from", "to"))
                own = zone.create_link(f"own.{stream}", [1e15]).set_latency(max(latency_s, 1e-9)).seal()
                path = [simgrid.LinkInRoute(link) for link in (own, *(links[name] for name in names))]
                zone.add_route(source.netpoint, target.netpoint, None, None, path, False)
                self.route[stream] = (source, target)
            before = [*after, *([last[stream]] if stream in last else [])]
            last[stream] = i
            self.waits[i] = len(before)
            for j in before:
                self.successors[j].append(i)
            if not before:
                self.ready.append(i)

    def run(self) -> None:
        """The actor: starts what is ready, waits for what ends first."""
        pending: list = []
        numbers: list[int] = []
        while self.ready or pending:
            for i in self.ready:
                stream, size = self.operations[i][:2]
                pending.append(simgrid.Comm.sendto_async(*self.route[stream], size))
                numbers.append(i)
            self.ready = []
            k = simgrid.Comm.wait_any(pending)
            pending.pop(k)
            for j in self.successors[numbers.pop(k)]:
                self.waits[j] -= 1
                if not self.waits[j]:
                    self.ready.append(j)


def main() -> None:
    system = json.load(sys.stdin)
    engine = simgrid.Engine(["simgrid_step", *(f"--cfg={item}" for item in CONFIGURATION), "--log=root.thres:critical"])
    zone = simgrid.NetZone.create_full_zone("zone")
    home = zone.create_host("home", [1.0]).seal()
    begin = time.process_time()
    step = Step(system, zone)
    zone.seal()
    simgrid.Actor.create("step", home, step.run)
    engine.run()
    json.dump({"cpu_s": time.process_time() - begin, "makespan_s": simgrid.Engine.clock}, sys.stdout)


if __name__ == "__main__":
    main()
