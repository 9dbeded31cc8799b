"""Jobs of several hosts in one simulation: grants, exhaustion, shared data, and peaks of what is there at once."""

import pytest

from sim.config import load_scenario, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.report.pooling import draw_pool, worst_wait

GIB = 2.0**30
WORKLOAD = {
    "training": {
        "model": "gpt2", "sequence_length": 512, "batch_size": 1, "framework": "deepspeed-zero",
        "checkpointing": {"active": True},
    }
}  # fmt: skip


def together(*, placement=None, starts=("0 s", "0 s"), topology="cxl3-pool-4-hosts", **patch):
    jobs = [
        {"name": f"job{i}", "host": f"host{i}", "start": start, "workload": WORKLOAD,
         "placement": placement or {"optimizer_states": "pool0"}}
        for i, start in enumerate(starts)
    ]  # fmt: skip
    return run(scenario_of({"topology": {"base": topology, "set": patch}, "jobs": jobs}).resolve(), with_penalty=False)


@pytest.fixture(scope="module")
def one_peak():
    return together().pools["pool0"].hosts["host0"]


def test_jobs_at_once_hold_the_sum_of_their_peaks(one_peak):
    pool = together().pools["pool0"]
    assert pool.hosts == pytest.approx({"host0": one_peak, "host1": one_peak})
    assert pool.peak_bytes == pytest.approx(2 * one_peak)
    assert pool.num_grants == 2


def test_jobs_one_after_the_other_need_the_pool_once(one_peak):
    pool = together(starts=("0 s", "100 s")).pools["pool0"]
    assert pool.peak_bytes == pytest.approx(one_peak)
    assert pool.own_peaks_bytes == pytest.approx(2 * one_peak)


def test_a_full_pool_lets_the_second_job_wait_for_the_first(one_peak):
    extents = -(-one_peak // GIB)
    roomy = together(**{"pool0.capacity": f"{2 * extents} GiB"})
    full = together(**{"pool0.capacity": f"{2 * extents - 1} GiB"})
    assert roomy.contention == pytest.approx(1.0, abs=0.05)
    assert roomy.fits
    assert full.fits
    assert full.jobs[1].contention > 1.8
    assert full.pools["pool0"].num_releases == 1


def test_a_pool_that_no_job_fits_is_said_to_be_too_small(one_peak):
    result = together(**{"pool0.capacity": f"{one_peak / GIB - 1:.6f} GiB"})
    assert not result.fits
    assert "pool0 needs" in result.reason


def test_a_pool_without_dynamic_capacity_gives_what_it_was_told(one_peak):
    def granted(second):
        grants = {"host0": f"{1.1 * one_peak / GIB:.4f} GiB", "host1": f"{second * one_peak / GIB:.4f} GiB"}
        return together(topology="cxl-pool-2-hosts", placement={"optimizer_states": "cxl0"}, **{"cxl0.grants": grants})

    assert granted(1.1).fits
    result = granted(0.9)
    assert not result.fits
    assert "job1: cxl0 needs" in result.reason
    with pytest.raises(InputError, match=r"jobs\[1\]\.placement.*: cxl0 grants nothing to host1; grant it a part"):
        granted(0.0)


def test_shared_data_is_there_once_and_costs_messages_on_both_directions_of_the_other_link(one_peak):
    def at(shared):
        return together(placement={"optimizer_states": {"pool0": "100%", "shared": shared}})

    none, some = at("0%"), at("50%")
    assert some.pools["pool0"].hosts == pytest.approx(none.pools["pool0"].hosts, rel=0.05)  # what each needs is the same
    states = none.pools["pool0"].by_class["optimizer_states"] / 2
    assert some.pools["pool0"].peak_bytes == pytest.approx(2 * one_peak - 0.5 * states, rel=1e-6)
    for channel in ("pool0->cpu0.cxl", "cpu0->pool0.cxl", "pool0->cpu1.cxl"):
        assert some.summary.channels[channel].bytes > none.summary.channels[channel].bytes
    assert some.summary.step_time_s > none.summary.step_time_s


def test_sharing_needs_a_device_that_keeps_hosts_coherent():
    match = "cxl0 keeps hosts coherent only with back-invalidate, cxl-memory-module-x8 has none; share nothing there"
    with pytest.raises(InputError, match=match):
        together(topology="cxl-pool-2-hosts", placement={"optimizer_states": {"cxl0": "100%", "shared": "10%"}})


def test_readers_of_a_shared_region_pay_once_it_outgrows_the_snoop_filter():
    """Copies out of a region that several hosts read: silent while the filter tracks it, messages on all links beyond."""

    def reading(snoop_filter):
        training = {**WORKLOAD["training"], "parallelism": {"zero_stage": 3}}
        jobs = [
            {"name": f"job{i}", "host": f"host{i}", "workload": {"training": training},
             "placement": {"weights": {"pool0": "100%", "shared": "100%"}, "optimizer_states": "dram"}}
            for i in range(2)
        ]  # fmt: skip
        topology = {"base": "cxl3-pool-4-hosts", "set": {"pool0.snoop_filter": snoop_filter}}
        result = run(scenario_of({"topology": topology, "jobs": jobs}).resolve(), with_penalty=False)
        channels = result.summary.channels
        return [channels[name].bytes if name in channels else 0.0 for name in ("pool0->cpu0.cxl", "cpu0->pool0.cxl")]

    large, small, tiny = reading("4 GiB"), reading("128 MiB"), reading("1 MiB")
    for back, other, least in zip(small, tiny, large, strict=True):
        assert min(back, other) > least


def test_what_is_shared_lies_in_a_pool():
    with pytest.raises(InputError, match=r"optimizer_states\.shared: what is shared lies in memory of one host only"):
        together(placement={"optimizer_states": {"dram": "100%", "shared": "10%"}})
    assert together(placement={"optimizer_states": {"dram": "50%", "pool0": "50%", "shared": "10%"}}).fits


def test_a_host_that_is_not_there_and_memory_of_another_host_are_refused():
    with pytest.raises(
        InputError, match=r"jobs\[4\]\.host: no host 'host4' in machine .*; hosts are host0, host1, host2, host3"
    ):
        together(starts=("0 s",) * 5)
    with pytest.raises(InputError, match=r"optimizer_states\.cpu1\.dram: unknown tier 'cpu1\.dram'"):
        together(placement={"optimizer_states": "cpu1.dram"})


def test_a_pool_has_as_many_hosts_as_heads():
    with pytest.raises(InputError, match=r"pool0\.to: hangs on 5 devices, cxl3-pool-4-heads has 4 heads; use at most 4"):
        together(**{"pool0.to": ["cpu0", "cpu1", "cpu2", "cpu3", "cpu0"]})


def test_the_study_of_the_pool_orders_its_points():
    """Jobs in phase save nothing; shifted they do, at a slowdown that a shared way to the pool makes worse."""
    file = load_scenario("tiers/pool-study")
    points = {tuple(scenario.parameters.values()): run(scenario, with_penalty=False).point() for scenario in _ends(file)}
    in_phase, heads, switch = (
        points["100 %", f"{name}"] for name in ("in phase, four heads", "shifted, four heads", "shifted, one switch")
    )
    assert in_phase["host_memory"]["saved"] == pytest.approx(0.0, abs=1e-9)
    assert heads["host_memory"]["saved"] == pytest.approx(switch["host_memory"]["saved"])
    assert heads["host_memory"]["saved"] > 0.1
    assert heads["contention"] == pytest.approx(1.0, abs=1e-3)  # requests queue
    assert switch["contention"] > 1.2


def _ends(file):
    return [scenario for scenario in file.expand() if "100 %" in scenario.parameters.values()]


def test_one_host_may_be_granted_two_terabytes_and_more():
    def capacity(**patch):
        from sim.topology.view import host_view

        topology = {"base": "cxl3-pool-4-hosts", "set": patch}
        jobs = [{"host": "host0", "workload": WORKLOAD, "placement": {"optimizer_states": "pool0"}}]
        return (
            host_view(scenario_of({"topology": topology, "jobs": jobs}).resolve().machine, "host0")
            .tiers["pool0"]
            .capacity_bytes
        )

    assert capacity() == 2048 * GIB
    assert capacity(**{"pool0.count": 2}) == 4096 * GIB
    assert capacity(**{"pool0.grants": {"host1": "48 GiB"}}) == 2000 * GIB


def test_a_policy_places_on_the_memory_of_the_jobs_own_host():
    result = together(placement={"policy": "first_touch"})
    assert [set(job.scenario.job.placement.entries[0].shares) for job in result.jobs] == [{"cpu0.dram"}, {"cpu1.dram"}]
    moving = together(placement={"policy": "hot_cold"})
    assert any("scans for hot pages are simulated for a job alone" in note for note in moving.assumptions)


def activations(capacity):
    workload = {"training": {**WORKLOAD["training"], "model": "llama-2-7b", "batch_size": 4, "sequence_length": 2048,
                             "checkpointing": {"active": True, "offload": True}}}  # fmt: skip
    jobs = [
        {"name": name, "host": host, "workload": workload, "placement": {"activations": "pool0", "optimizer_states": "dram"}}
        for name, host in (("a", "host0"), ("b", "host1"))
    ]
    topology = {"base": "cxl3-pool-4-hosts", "set": {"pool0.capacity": capacity}}
    return run(scenario_of({"topology": topology, "jobs": jobs}).resolve(), with_penalty=False)


def test_memory_that_comes_and_goes_in_a_step_is_granted_while_it_is_needed():
    roomy, short = activations("4 GiB"), activations("3 GiB")
    assert roomy.contention == pytest.approx(1.0, abs=0.02)
    assert short.fits
    assert short.jobs[1].contention > 1.1  # waits in the middle of its step for what the other frees


def test_jobs_that_hold_each_other_up_for_ever_are_told_so():
    result = activations("2 GiB")
    assert not result.fits
    assert "the pool is exhausted and nobody frees: pool0@host0 waits for capacity beside 1 GiB of pool0@host0" in result.reason


def test_equal_hosts_meet_on_a_saturated_pool_and_lose_alike():
    first, second = run(load_scenario("two-jobs-one-pool").resolve(), with_penalty=False).jobs
    assert first.contention == pytest.approx(second.contention, rel=0.15)  # the second starts two seconds later
    assert first.contention > 1.3


def test_a_host_with_few_threads_loses_more_to_one_with_many():
    def job(name, host, cores):
        training = {"model": "llama-2-7b", "framework": "deepspeed-zero", "checkpointing": {"active": True}, "offload": cores}
        states = {"optimizer_states": {"cxl0": "50%", "cxl1": "50%"}}
        return {"name": name, "host": host, "workload": {"training": training}, "placement": states}

    jobs = [job("few", "host0", {"cores_per_rank": 8}), job("many", "host1", {})]
    few, many = run(scenario_of({"topology": "cxl-pool-2-hosts", "jobs": jobs}).resolve(), with_penalty=False).jobs
    assert few.contention > 1.1 * many.contention


def test_a_host_without_a_gpu_runs_no_job():
    with pytest.raises(InputError, match=r"jobs\[1\]\.host: host 'host1' has no GPU to run on; run the job on another host"):
        together(gpu1=None)


def test_a_load_from_a_pool_waits_behind_what_another_hosts_update_keeps_in_flight():
    points = {
        (point.parameters["jobs.noisy.placement.optimizer_states"], point.parameters["way"]): point
        for point in load_scenario("tiers/noisy-neighbour").expand()
    }
    rows = {key: run(points[key, "one switch"], with_penalty=False) for key in ("0 %", "2 %", "25 %", "100 %")}
    waits = {key: row.jobs[0].pool_latency["pool0"] for key, row in rows.items()}  # of `quiet`
    assert waits["0 %"].neighbours == ()
    assert rows["0 %"].jobs[1].pool_latency == {}  # has nothing in the pool
    assert waits["2 %"].neighbours == ("noisy",)
    assert waits["0 %"].beside_s == waits["2 %"].beside_s == waits["2 %"].idle_s  # the port is not full
    assert waits["100 %"].beside_s > waits["25 %"].beside_s > 1.5 * waits["25 %"].idle_s
    told = rows["100 %"].point()["jobs"]["quiet"]["pool_latency"]["pool0"]
    assert told["beside_s"] == waits["100 %"].beside_s


def test_jobs_that_are_not_at_once_do_not_wait_for_each_other():
    placement = {"optimizer_states": "pool0"}
    at_once, apart = (together(placement=placement, starts=("0 s", start)) for start in ("0 s", "500 s"))
    assert all(job.pool_latency["pool0"].beside_s > job.pool_latency["pool0"].idle_s for job in at_once.jobs)
    assert all(job.pool_latency["pool0"].beside_s == job.pool_latency["pool0"].idle_s for job in apart.jobs)


def test_the_picture_of_a_pool_shows_what_its_loads_wait(tmp_path):
    points = [
        run(point, with_penalty=False).point() | {"parameters": dict(point.parameters)}
        for point in load_scenario("tiers/noisy-neighbour").expand()
        if point.parameters["way"] == "one switch"
    ]
    assert worst_wait(points[0]) == 1.0 < 5.0 < worst_wait(points[-1]) < 7.0
    assert draw_pool("noisy", points, tmp_path / "pool.png").stat().st_size > 10_000
