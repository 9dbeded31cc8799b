"""Speed of the engine as a fraction of bare simpy: `python -m tests.benchmarks.engine [--json]`.

CPU seconds, summary records on, array build included, compilation of the numba backend excluded. Each figure is the
median of five pairs interleaved with bare simpy on the same machine, so that a slow moment hits both. Operations per CPU
second are that fraction of the run's `bare_simpy_per_cpu_s`: divide the two to have it back.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import simpy
from msgspec.structs import replace

from sim.engine import replay
from sim.records import LatencyLaw, Program
from tests.benchmarks.steps import step

SIMGRID_PYTHON = "/usr/bin/python3"
#: ranks -> (layers, micro-batches): 6,400 to 12,800 operations each
SIZES = {1: (80, 8), 8: (80, 1), 64: (20, 1)}
BARS = {  # fractions of bare simpy
    "identical_ops_per_cpu_s": {"1": 0.07, "8": 0.07, "64": 0.07},
    "jittered_ops_per_cpu_s": {"8": 0.014, "64": 0.006},
    "fast_jittered_ops_per_cpu_s": {"8": 0.20, "64": 0.10},
}


def bare_simpy(num: int = 100_000) -> float:
    """Process resumptions per CPU second: one process, one pending timeout."""

    def tick(env: simpy.Environment):
        for _ in range(num):
            yield env.timeout(1.0)

    env = simpy.Environment()
    env.process(tick(env))
    begin = time.process_time()
    env.run()
    return num / (time.process_time() - begin)


def operations_per_cpu_s(program: Program, backend: str) -> float:
    begin = time.process_time()
    replay(program, backend=backend)
    return len(program.operations) / (time.process_time() - begin)


def paired(measure: Callable[[], float], num_pairs: int = 5) -> float:
    """Median of measure / bare simpy over interleaved pairs."""
    measure()
    return statistics.median(measure() / bare_simpy() for _ in range(num_pairs))


def folded_cpu_s(num_ranks: int) -> float:
    """Generate and replay 80 layers x 8 micro-batches x 10 operations of `num_ranks` identical ranks; best of five."""

    def once() -> float:
        begin = time.process_time()
        replay(step(1, 80, num_micro_batches=8, multiplicity=num_ranks))
        return time.process_time() - begin

    return min(once() for _ in range(5))


def latency_bound(program: Program) -> Program:
    """`program` with host updates limited by the cores' outstanding bytes: 64 B x 64 per core against a loaded DRAM."""
    law = LatencyLaw(idle_latency_s=100e-9, a=0.1, c=0.4, k=0.7)
    channels = tuple(replace(row, latency=law) if row.name == "dram" else row for row in program.channels)
    operations = tuple(
        replace(row, window_bytes=64 * 64 * 16.0) if row.stream.endswith(".cpu") else row for row in program.operations
    )
    return replace(program, channels=channels, operations=operations)


def simgrid_ops_per_cpu_s(program: Program) -> float:
    """The same step in SimGrid (Debian's python3-simgrid), every cost 1 and compute on its rank's memory; best of three."""
    bandwidth = {row.name: row.bandwidth_per_s for row in program.channels}
    number = {row.id: i for i, row in enumerate(program.operations)}
    # links carry whole bytes at cost 1: compute becomes the bytes that it moves through its memory in its time
    operations = [
        [
            row.stream,
            round(row.work * (bandwidth[row.uses[0][0]] if row.rate_cap == 1.0 else 1.0)),
            row.latency_s,
            [name for name, _ in row.uses if name != "cores"],
            [number[name] for name in row.after],
        ]
        for row in program.operations
    ]
    system = json.dumps({"links": bandwidth, "operations": operations})
    script = str(Path(__file__).with_name("simgrid_step.py"))
    runs = [
        subprocess.run([SIMGRID_PYTHON, script], input=system, capture_output=True, text=True, check=True) for _ in range(3)
    ]
    return len(operations) / min(json.loads(run.stdout)["cpu_s"] for run in runs)


def has_simgrid() -> bool:
    """Debian's Python has the package (it does not install into a virtual environment)."""
    if shutil.which(SIMGRID_PYTHON) is None:
        return False
    return not subprocess.run([SIMGRID_PYTHON, "-c", "import simgrid"], capture_output=True).returncode


def measure_all(backends: tuple[str, ...]) -> tuple[dict[str, object], dict[str, dict[str, float]]]:
    bare = max(bare_simpy() for _ in range(5))
    table: dict[str, object] = {"bare_simpy_per_cpu_s": bare}
    fractions: dict[str, dict[str, float]] = {}
    for key, jitter, backend in (
        ("identical_ops_per_cpu_s", 0.0, "python"),
        ("jittered_ops_per_cpu_s", 0.025, "python"),
        ("fast_identical_ops_per_cpu_s", 0.0, "numba"),
        ("fast_jittered_ops_per_cpu_s", 0.025, "numba"),
    ):
        if backend not in backends:
            continue
        table[key], fractions[key] = row, ratio = {}, {}
        for ranks, (layers, micro_batches) in SIZES.items():
            program = step(ranks, layers, num_micro_batches=micro_batches, jitter=jitter)
            fraction = paired(lambda program=program, backend=backend: operations_per_cpu_s(program, backend))
            row[str(ranks)], ratio[str(ranks)] = fraction * bare, fraction
    bound = latency_bound(step(8, 80, jitter=0.025))
    table["latency_bound_ops_per_cpu_s"] = bare * paired(lambda: operations_per_cpu_s(bound, "python"), num_pairs=3)
    table["folded_cpu_s"] = {str(ranks): folded_cpu_s(ranks) for ranks in (1, 64, 1024, 16384)}
    if has_simgrid():
        table["simgrid_ops_per_cpu_s"] = {
            str(ranks): simgrid_ops_per_cpu_s(step(ranks, layers, num_micro_batches=micro_batches, jitter=0.025))
            for ranks, (layers, micro_batches) in SIZES.items()
        }
    return table, fractions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    backends = ("python",) if find_spec("numba") is None else ("python", "numba")
    if "numba" in backends:
        replay(step(1, 1), backend="numba")  # compiles, or loads what was compiled
    table, fractions = measure_all(backends)
    if parser.parse_args().json:
        print(json.dumps(table, indent=1))
        return
    print(f"bare simpy {table['bare_simpy_per_cpu_s']:,.0f} resumptions per CPU second")
    for key, row in fractions.items():
        for ranks, fraction in row.items():
            bar = BARS.get(key, {}).get(ranks)
            verdict = f"bar {bar:.3f}: {'met' if fraction >= bar else 'MISSED'}" if bar else ""
            print(f"{key:32} {ranks:>3} ranks {table[key][ranks]:>12,.0f}/s  {fraction:.4f} of simpy  {verdict}")
    print(f"latency-bound host updates, jittered   8 ranks {table['latency_bound_ops_per_cpu_s']:>12,.0f}/s")
    for ranks, speed in table.get("simgrid_ops_per_cpu_s", {}).items():
        print(f"SimGrid, jittered                     {ranks:>3} ranks {speed:>12,.0f}/s")
    if "simgrid_ops_per_cpu_s" not in table:
        print("SimGrid: not measured, the Debian package python3-simgrid is not installed")
    for ranks, seconds in table["folded_cpu_s"].items():
        print(f"folded, generated and replayed   {ranks:>5} ranks {seconds * 1e3:8.1f} ms")


if __name__ == "__main__":
    main()
