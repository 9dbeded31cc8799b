"""Programs with one fingerprint take equal times; whatever changes a time changes it."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from sim.config import scenario_of
from sim.engine import replay
from sim.engine.fingerprint import fingerprint
from sim.experiment import prepare
from sim.experiment.solving import solve, step_seconds
from sim.records import Channel, Kind, Operation, Program, Stream


def _program(dram=100.0, link=10.0, weight=1.0, work=50.0):
    def flow(stream, uses):
        return Operation(
            id=f"{stream}.0", kind=Kind.TRANSFER, stream=stream, sequence=0, work=work, uses=uses, rate_cap=8.0, weight=weight
        )

    return Program(
        name="two copies",
        channels=(Channel(name="dram", bandwidth_per_s=dram), Channel(name="link", bandwidth_per_s=link)),
        tiers=(),
        streams=(Stream(name="a"), Stream(name="b")),
        operations=(flow("a", (("dram", 1.0), ("link", 1.0))), flow("b", (("dram", 1.0), ("link", 1.0)))),
    )


def test_a_channel_that_cannot_be_full_does_not_count():
    assert fingerprint(_program(dram=100.0)) == fingerprint(_program(dram=17.0))
    assert replay(_program(dram=100.0)).operations == replay(_program(dram=17.0)).operations


@pytest.mark.parametrize("change", [{"dram": 15.9}, {"link": 9.0}, {"work": 51.0}, {"weight": 2.0}])
def test_what_can_change_a_time_counts(change):
    assert fingerprint(_program()) != fingerprint(_program(**change))


def test_weights_of_flows_that_share_nothing_do_not_count():
    wide = {"dram": 100.0, "link": 100.0}
    assert fingerprint(_program(**wide)) == fingerprint(_program(**wide, weight=2.0))


def test_seconds_shared_by_programs_are_those_of_a_run_of_each():
    data = {"training": {"model": "llama-2-7b", "batch_size": 1, "sequence_length": 512}, "topology": "epyc-9554p-2x4090"}
    base = scenario_of(data).resolve()
    dram = base.machine.channels["cpu0.dram"]
    slower = msgspec.structs.replace(dram, bandwidth_per_s=0.9 * dram.bandwidth_per_s)
    other = dataclasses.replace(
        base, machine=dataclasses.replace(base.machine, channels=base.machine.channels | {"cpu0.dram": slower})
    )
    assert fingerprint(prepare(base)[1]) == fingerprint(prepare(other)[1])  # nothing is offloaded
    for scenario in (base, other):
        summary = solve(scenario).summary
        assert step_seconds(scenario) == (summary.step_time_s, summary.tiers)
