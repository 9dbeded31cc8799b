"""The replay against SimGrid's plain max-min model on random small systems: weights, caps, latencies, short chains."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from sim.engine import run_checked
from sim.records import Channel, Kind, Operation, Program, Stream

SCRIPT = Path(__file__).parents[1] / "simgrid_replay.py"
PYTHON = "/usr/bin/python3"  # Debian's: the package does not install into a virtual environment


def has_simgrid() -> bool:
    return (
        shutil.which(PYTHON) is not None
        and not subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True).returncode
    )


def system(seed: int) -> dict:
    """Up to 4 shared links, 2 to 6 chains of 1 to 4 flows. Whole bytes; weights 1 / latency from 4 to 1000."""
    draw = random.Random(seed)
    links = [float(draw.randint(10, 1000)) * 1e6 for _ in range(draw.randint(1, 4))]

    def flow() -> dict:
        return {
            "size": draw.randint(1_000_000, 1_000_000_000),
            "cap": float(draw.randint(5, 2000)) * 1e6,
            "latency": draw.choice((0.001, 0.001, 0.002, 0.01, 0.25)),
            "links": draw.sample(range(len(links)), draw.randint(1, len(links))),
        }

    return {"links": links, "chains": [[flow() for _ in range(draw.randint(1, 4))] for _ in range(draw.randint(2, 6))]}


def ours(system: dict) -> list[list[float]]:
    operations = tuple(
        Operation(
            id=f"{number}.{i}",
            kind=Kind.TRANSFER,
            stream=f"s{number}",
            sequence=i,
            work=float(flow["size"]),
            uses=tuple((f"c{link}", 1.0) for link in flow["links"]),
            rate_cap=flow["cap"],
            latency_s=flow["latency"],
            weight=1.0 / flow["latency"],
        )
        for number, chain in enumerate(system["chains"])
        for i, flow in enumerate(chain)
    )
    program = Program(
        name="chains",
        channels=tuple(Channel(name=f"c{i}", bandwidth_per_s=bandwidth) for i, bandwidth in enumerate(system["links"])),
        tiers=(),
        streams=tuple(Stream(name=f"s{number}") for number in range(len(system["chains"]))),
        operations=operations,
    )
    ends = {record.id: record.end_s for record in run_checked(program).operations}
    return [[ends[f"{number}.{i}"] for i in range(len(chain))] for number, chain in enumerate(system["chains"])]


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid(), reason="Debian package python3-simgrid is not installed")
@pytest.mark.parametrize("seed", range(25))
def test_chains_end_when_simgrid_says(seed):
    case = system(seed)
    done = subprocess.run([PYTHON, str(SCRIPT)], input=json.dumps(case), capture_output=True, text=True, check=True)
    assert ours(case) == [pytest.approx(row, rel=1e-6) for row in json.loads(done.stdout)]
