"""One memory for CPU and GPU: nothing is copied, what the GPU may allocate is limited, and superchips lie between."""

import pytest

from sim.config import load_machine, load_scenario, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.study.fit import assess

GIB = 2.0**30


@pytest.fixture(scope="module")
def machines():
    points = load_scenario("tiers/unified-or-discrete").expand()
    return {str(point.parameters["machine"]).partition(" (")[0]: run(point, with_penalty=False) for point in points}


def test_the_cpu_updates_and_nothing_is_copied_where_memory_is_one(machines):
    for name in ("MI300A", "Strix Halo"):
        parts = machines[name].summary.breakdown_s
        assert parts["cpu_optimizer"] > 0.0
        assert parts["exposed_transfer"] == 0.0


def test_copies_cost_less_the_wider_the_way(machines):
    one, chip, discrete, old = (
        machines[name].summary.breakdown_s["exposed_transfer"] for name in ("MI300A", "GH200", "H100 SXM", "A100 80 GB")
    )
    assert one < chip < discrete < old
    assert machines["MI300A"].summary.step_time_s < machines["MI300X"].summary.step_time_s


def test_one_memory_holds_what_two_memories_hold_together(machines):
    unified = machines["MI300A"].summary.tiers["gpu0.hbm"].peak_bytes
    discrete = sum(use.peak_bytes for use in machines["MI300X"].summary.tiers.values())
    assert unified == pytest.approx(discrete, rel=0.05)


def answer(share):
    data = {
        "topology": {"base": "strix-halo", "set": {"gpu0.gpu_share": share}},
        "workload": {"inference": {"model": "llama-2-13b", "weights": "fp16"}},
    }
    return run(scenario_of(data).resolve(), with_penalty=False)


def test_the_gpu_may_allocate_its_share_and_no_byte_more():
    whole = answer(1.0).summary.tiers["gpu0.lpddr"]
    host = 6.0 * GIB  # process, system and services
    least = (whole.peak_bytes - host) / whole.capacity_bytes
    assert answer(least * (1 + 1e-9)).fits
    tight = answer(least * (1 - 1e-6))
    assert not tight.fits
    assert "gpu0.lpddr needs" in tight.reason


def test_a_discrete_gpu_shares_its_memory_with_no_cpu():
    with pytest.raises(InputError, match=r"gpu0\.gpu_share: h100-sxm shares its memory with no CPU"):
        scenario_of(
            {
                "topology": {"base": "h100-sxm-1x", "set": {"gpu0.gpu_share": 0.5}},
                "workload": {"inference": {"model": "gpt2"}},
            }
        ).resolve()


def test_a_discrete_host_caches_the_file_that_its_gpu_has_copied():
    def memory(topology):
        workload = {"inference": {"model": "llama-2-7b", "weights": "fp16"}}
        return run(scenario_of({"topology": topology, "workload": workload}).resolve(), with_penalty=False).point()["memory"]

    unified, discrete = memory("mi300a-node"), memory("dgx-a100")
    assert unified["page_cache_bytes"] == 0.0
    assert discrete["page_cache_bytes"] == pytest.approx(2 * 6.74e9, rel=0.01)
    assert unified["needed_bytes"] == pytest.approx(discrete["needed_bytes"], rel=0.05)


def test_a_paged_optimizer_faults_once_its_states_are_one_byte_too_many():
    from dataclasses import replace

    from msgspec.structs import replace as with_fields

    def step(capacity_bytes=None, kind="paged_adamw_8bit"):
        data = {
            "topology": "desktop-rtx-4090",
            "workload": {
                "training": {
                    "model": "llama-3.2-3b", "sequence_length": 1024, "optimizer": {"type": kind},
                    "checkpointing": {"active": True},
                }
            },
        }  # fmt: skip
        scenario = scenario_of(data).resolve()
        tier = scenario.machine.tiers["gpu0.gddr"]
        tier = with_fields(tier, capacity_bytes=capacity_bytes or 1e12)
        machine = replace(scenario.machine, tiers=dict(scenario.machine.tiers) | {"gpu0.gddr": tier})
        return run(replace(scenario, machine=machine), with_penalty=False)

    need = step().summary.tiers["gpu0.gddr"].peak_bytes
    fits, pages, plain = step(need * (1 + 1e-9)), step(need * (1 - 1e-6)), step(need * (1 - 1e-6), "adamw_8bit")
    assert fits.summary.breakdown_s["exposed_transfer"] == 0.0
    assert pages.fits
    assert pages.summary.breakdown_s["exposed_transfer"] > 0.1
    assert not plain.fits


@pytest.mark.parametrize(("name", "is_staged"), [("dgx-spark", False), ("mi300a-node", False), ("gh200", True)])
def test_a_file_is_read_into_the_memory_that_the_gpu_shares_without_a_bounce(name, is_staged):
    machine = load_machine(name)
    drive = next(tier for tier, own in machine.tiers.items() if own.kind == "nvme")
    route = machine.route(drive, machine.memory_tier("gpu0"), initiator="gpu0")
    assert route.is_staged is is_staged


@pytest.mark.parametrize(
    ("name", "weights", "is_told"), [("dgx-spark", "fp8", True), ("dgx-spark", "int4", False), ("strix-halo", "int4", False)]
)
def test_loading_beside_the_page_cache_is_told_where_the_driver_does_not_take_it_back(name, weights, is_told):
    inference = {"model": "llama-3.3-70b", "framework": "vllm", "weights": weights, "prompt_length": 512, "output_length": 8}
    scenario = scenario_of({"topology": name, "workload": {"inference": inference}}).resolve()
    result = run(scenario, with_penalty=False)
    assert result.fits
    assert any("page cache" in note for note in result.assumptions) == is_told


@pytest.mark.parametrize(
    ("topology", "told"),
    [
        ({"base": "strix-halo", "set": {"gpu0.gpu_limit": "96 GiB", "gpu0.gpu_share": 0.5}}, "given beside gpu_share"),
        ({"base": "strix-halo", "set": {"gpu0.gpu_limit": "256 GiB"}}, "256 GiB of 128 GiB"),
        ({"base": "h100-sxm-1x", "set": {"gpu0.gpu_limit": "40 GiB"}}, "shares its memory with no CPU"),
        ({"base": "strix-halo", "set": {"gpu0.pages_limit": 25165824}}, "write gpu_limit on the GPU"),
    ],
)  # fmt: skip
def test_what_the_gpu_may_allocate_in_bytes_is_checked(topology, told):
    with pytest.raises(InputError, match=told):
        scenario_of({"topology": topology, "workload": {"inference": {"model": "llama-3.1-8b"}}}).resolve()


def test_a_limit_in_bytes_is_the_share_that_it_makes():
    def capacity(**limit):
        topology = {"base": "strix-halo", "set": {f"gpu0.{key}": value for key, value in limit.items()}}
        workload = {"inference": {"model": "llama-3.1-8b", "weights": "q4_k_m"}}
        return assess(scenario_of({"topology": topology, "workload": workload}).resolve()).tiers["gpu0.lpddr"].capacity_bytes

    assert capacity(gpu_limit="96 GiB") == capacity(gpu_share="75%")
