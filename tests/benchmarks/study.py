"""Speed of studies: `python -m tests.benchmarks.study [--points N] [--workers N] [--large N] [--dask]`.

Runs N distinct points of the reference box's sweep from a cold start, twins included, in a folder of its own; compares
20 random points bit for bit with a single run; times the resume of the finished study; with `--large`, a study of that
many points and the memory of the coordinator; with `--dask`, the same points on two local Dask workers.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import tempfile
import time
from pathlib import Path

import msgspec

from sim.config.scenario_file import load_scenario, scenario_of
from sim.experiment import run
from sim.study.pool import Processes
from sim.study.study import Study


def reference_study(num_points: int, folder: Path) -> Study:
    """The reference box by batch size, lanes and what a neighbour takes of its host memory: every point has its own inputs."""
    data = dict(load_scenario("a12-reference-box").document.data)
    data.pop("claim", None)
    num_shares = -(-num_points // 16)
    data["sweep"] = {
        "topology.cpu0.taken": [f"{60 * index / num_shares:.6g}%" for index in range(num_shares)],
        "workload.training.batch_size": [1, 2, 3, 4, 5, 6, 7, 8],
        "topology.gpu1.link.lanes": [8, 16],
    }
    return Study(scenario_of(data, "speed"), folder)


def timed(study: Study, backend: object) -> float:
    """Wall seconds of one run of the study; prints the CPU seconds too, of this process and of those that have ended."""
    started, cpu = time.perf_counter(), _cpu_s()
    tally = study.run(backend)  # type: ignore[arg-type]
    wall, cpu = time.perf_counter() - started, _cpu_s() - cpu
    counts = f"{tally.num_points} points, {tally.num_run} run, {tally.num_found} found, {tally.counts}"
    print(f"  {counts}: {wall:.2f} s wall, {cpu:.1f} s of CPU", flush=True)
    return wall


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def check_random_points(study: Study, count: int = 20) -> None:
    """Compare stored points with single runs, byte for byte."""
    pairs = list(zip(study.outcomes(), study.assignments(), strict=True))
    for row, assignment in random.Random(1).sample(pairs, count):
        single = run(study.file.resolve(assignment.overlay, assignment.parameters))
        assert row.point == msgspec.json.encode(single.point()), row.parameters
    print(f"  {count} random points equal single runs, bit for bit")
    assert len({row.key for row, _ in pairs}) == len(pairs), "points are not distinct"


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--large", type=int, default=0)
    parser.add_argument("--dask", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        study = reference_study(asked.points, Path(scratch) / "pool")
        print("process pool, cold")
        pool_s = timed(study, Processes(asked.workers))
        check_random_points(study)
        print("resume of the finished study")
        timed(study, Processes(asked.workers))
        if asked.dask:
            from sim.study.cluster import Dask

            print("Dask")
            dask_s = timed(reference_study(asked.points, Path(scratch) / "dask"), Dask(f"local:{asked.workers}"))
            print(f"  {dask_s / pool_s:.2f} x the pool")
        if asked.large:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(f"{asked.large} points")
            large = reference_study(asked.large, Path(scratch) / "large")
            timed(large, Processes(asked.workers))
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            print(f"  the coordinator grew by {grown:.0f} MiB")
            print("resume")
            timed(large, Processes(asked.workers))


if __name__ == "__main__":
    main()
