"""Verdicts at both sides of the boundary, suggestions that hold, and the search for the largest that fits."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from sim.config import scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.placement.capacity import TierNeed, capacity_plan, verdict
from sim.scenario import Scenario
from sim.study.fit import assess, largest, largest_that
from sim.study.fit_changes import applied
from sim.units import GIB

BOX = "epyc-9554p-2x4090"


def scenario(training: dict[str, Any], topology: Any = BOX, **blocks: Any) -> Scenario:
    data = {"topology": topology, "workload": {"training": training}} | blocks
    return scenario_of(data, "case").resolve()


SMALL = {"model": "gpt2", "sequence_length": 512, "batch_size": 1, "framework": "pytorch"}
LLAMA = {
    "model": "llama-7b",
    "framework": "deepspeed-zero",
    "sequence_length": 1024,
    "batch_size": 1,
    "checkpointing": {"active": True},
    "parallelism": {"zero_stage": 3},
}


def test_verdict_is_tight_from_90_percent_and_a_misfit_one_byte_above_the_capacity() -> None:
    assert verdict(90.0, 100.0) == "fits"
    assert verdict(90.1, 100.0) == "tight"
    assert verdict(100.0, 100.0) == "tight"
    assert verdict(100.1, 100.0) == "does_not_fit"


def test_both_sides_of_the_gpu_boundary() -> None:
    peak = assess(scenario(SMALL)).tiers["gpu0.gddr"].peak_bytes
    machine = scenario(SMALL).machine

    def with_capacity(size: float) -> str:
        tiers = dict(machine.tiers)
        for name in ("gpu0.gddr", "gpu1.gddr"):
            import msgspec

            tiers[name] = msgspec.structs.replace(tiers[name], capacity_bytes=size)
        point = scenario(SMALL)
        return assess(dataclasses.replace(point, machine=dataclasses.replace(machine, tiers=tiers))).verdict

    assert with_capacity(peak) == "tight"
    assert with_capacity(peak - 1) == "does_not_fit"
    assert with_capacity(peak / 0.89) == "fits"


def test_misfit_names_tier_phase_and_shortfall() -> None:
    found = assess(scenario(LLAMA | {"optimizer": {"offload": True}}, {"base": BOX, "set": {"cpu0.memory.capacity": "96 GiB"}}))
    assert found.verdict == "does_not_fit"
    (need,) = found.misfits
    assert (need.tier, need.phase) == ("cpu0.dram", "init")
    body = found.point()["tiers"]["cpu0.dram"]
    assert body["shortfall_bytes"] == pytest.approx(body["peak_bytes"] - 96 * GIB)
    assert sum(body["by_class"].values()) == pytest.approx(body["peak_bytes"])
    assert need.largest[0].name == "optimizer states"


@pytest.mark.parametrize(
    "training",
    [
        LLAMA,
        LLAMA | {"batch_size": 16, "checkpointing": {"active": False}, "optimizer": {"offload": True}},
        {"model": "llama-2-70b", "framework": "deepspeed-zero", "batch_size": 4, "parallelism": {"data": 2, "zero_stage": 1}},
    ],
)
def test_every_suggested_change_fits_when_planned_again(training: dict[str, Any]) -> None:
    point = scenario(training)
    found = assess(point)
    assert found.verdict == "does_not_fit"
    assert found.suggestions
    for suggestion in found.suggestions:
        if any(path.startswith("capacity") for path in suggestion.settings):
            assert suggestion.peak_bytes <= suggestion.capacity_bytes
            continue
        workload, placement = point.job.workload, point.job.placement
        for path, value in suggestion.settings.items():
            workload, placement = applied(workload, placement, path, value)
        needs = capacity_plan(workload, placement, point.machine)
        assert all(need.verdict != "does_not_fit" for need in needs.values()), suggestion.change


def test_pairs_are_as_mild_as_they_may_be() -> None:
    job = {"model": "llama-2-13b", "sequence_length": 4096, "batch_size": 2, "adapter": {"type": "lora"}}
    found = assess(scenario(job, "desktop-rtx-4090"))
    settings = [item.settings for item in found.suggestions]
    assert {"workload.training.checkpointing.active": True, "placement.weights": "dram"} in settings


def test_larger_tiers_are_suggested_together_where_several_overflow() -> None:
    split = {"data": 2, "zero_stage": 3}
    job = {"model": "llama-3-70b", "framework": "fsdp", "checkpointing": {"active": True}, "parallelism": split}
    found = assess(scenario(job | {"adapter": {"type": "lora"}}, "rtx-3090-2x"))
    assert len(found.misfits) == 2
    (larger,) = (item for item in found.suggestions if any(path.startswith("capacity") for path in item.settings))
    assert set(larger.settings) == {f"capacity of {need.tier}" for need in found.misfits}


def test_no_suggestion_contains_a_milder_one() -> None:
    job = {"model": "gpt2-xl", "sequence_length": 1024, "batch_size": 8, "precision": "fp16", "framework": "hf-trainer"}
    found = assess(scenario(job | {"attention": "eager", "dropout": True}, "v100-32gb-1x"))
    kept = [item.settings.items() for item in found.suggestions]
    assert len(kept) > 1
    assert not any(one < other for one in kept for other in kept)


def test_megatron_is_never_told_to_use_a_stage_that_it_lacks() -> None:
    job = {"model": "llama-3-70b", "framework": "megatron", "parallelism": {"data": 4, "tensor": 2}}
    for item in assess(scenario(job, "dgx-h100")).suggestions:
        assert item.settings.get("workload.training.parallelism.zero_stage", 1) == 1


def test_phases_of_every_tier_reach_its_peak() -> None:
    found = assess(scenario(LLAMA | {"optimizer": {"offload": True}}))
    for name, need in found.tiers.items():
        assert max(row.get(name, 0.0) for row in found.phases.values()) == pytest.approx(need.peak_bytes)
        assert found.phases[need.phase][name] == pytest.approx(need.peak_bytes)
    assert found.tightest is not None
    assert found.point()["tiers"]["cpu0.dram"]["by_phase"]["update"] > 0


def test_smaller_micro_batch_keeps_the_global_batch_where_it_can() -> None:
    found = assess(scenario(LLAMA | {"batch_size": 24, "optimizer": {"offload": True}, "checkpointing": {"active": False}}))
    settings = next(item.settings for item in found.suggestions if "workload.training.batch_size" in item.settings)
    size, steps = settings["workload.training.batch_size"], settings.get("workload.training.gradient_accumulation", 1)
    assert 24 % size or size * steps == 24


@pytest.mark.parametrize("name", ["batch_size", "sequence_length", "layers"])
def test_largest_fits_and_one_more_does_not(name: str) -> None:
    from sim.study.fit import is_fitting, with_value

    point = scenario(SMALL)
    value = largest(point, name)
    assert value > 1
    job = point.job
    assert is_fitting(with_value(job.workload, name, value), job.placement, point.machine)  # type: ignore[arg-type]
    assert not is_fitting(with_value(job.workload, name, value + 1), job.placement, point.machine)  # type: ignore[arg-type]


def test_largest_is_zero_when_nothing_fits_and_refuses_other_names() -> None:
    huge = scenario({"model": "llama-3.1-405b", "framework": "pytorch"})
    assert largest(huge, "batch_size") == 0
    with pytest.raises(InputError, match="cannot search 'width'"):
        largest(huge, "width")


@pytest.mark.parametrize("limit", range(1, 40))
def test_bisection_is_exact(limit: int) -> None:
    assert largest_that(lambda value: value <= limit, 1, 1000) == limit
    assert largest_that(lambda value: value <= limit, 1, 20) == min(limit, 20)
    assert largest_that(lambda value: value <= limit, 50, 1000) == 0


def test_ranks_use_their_own_numa_node_and_spill_to_the_other_unless_bound() -> None:
    training = {
        "model": "llama-2-13b",
        "framework": "deepspeed-zero",
        "optimizer": {"offload": True},
        "parallelism": {"data": 4, "zero_stage": 3},
        "checkpointing": {"active": True},
    }

    def needs(capacity: str, **offload: Any) -> dict[str, TierNeed]:
        machine = {"base": "dgx-a100", "set": {"cpu0.memory.capacity": capacity}}
        point = scenario(training | {"offload": offload}, machine)
        return capacity_plan(point.job.workload, point.job.placement, point.machine)  # type: ignore[arg-type]

    roomy = needs("1 TiB")
    assert set(roomy) == {"gpu0.hbm", "cpu0.dram"}  # GPUs 0 to 3 hang on the first socket
    small = needs("128 GiB")
    assert small["cpu0.dram"].peak_bytes == pytest.approx(128 * GIB)
    assert small["cpu0.dram"].peak_bytes + small["cpu1.dram"].peak_bytes == pytest.approx(roomy["cpu0.dram"].peak_bytes)
    bound = needs("128 GiB", cores_bound=True)
    assert bound["cpu0.dram"].verdict == "does_not_fit"


def test_inference_misfit_suggests_quantisation_or_more_gpus() -> None:
    data = {"topology": BOX, "workload": {"inference": {"model": "llama-2-13b", "batch_size": 4}}}
    found = assess(scenario_of(data, "case").resolve())
    assert found.verdict == "does_not_fit"
    assert any("workload.inference.weights" in item.settings for item in found.suggestions)
    assert any("tensor_parallel: 2" in item.change for item in found.suggestions)


def test_command_prints_json_and_exits_1_on_a_misfit(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from sim.cli import run

    path = tmp_path / "misfit.yaml"
    path.write_text(f"topology: {BOX}\nworkload: {{training: {{model: llama-7b}}}}\n")
    assert run(["fit", str(path), "--json", "--max", "batch_size"]) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["verdict"] == "does_not_fit"
    assert body["max"] == {"batch_size": 0}
    assert body["suggestions"][0]["change"]
    assert set(body["tiers"]["gpu0.gddr"]) >= {"capacity_bytes", "peak_bytes", "peak_phase", "by_class"}
    assert run(["fit", "a12-reference-box", "--terms"]) == 0
    assert "optimizer states" in capsys.readouterr().out


def test_an_inference_job_has_its_own_phases_and_may_use_a_share_of_the_gpu() -> None:
    serving = {"model": "llama-2-7b", "weights": "fp16", "prompt_length": 2048, "output_length": 64}
    found = assess(scenario_of({"topology": "desktop-rtx-3090", "workload": {"inference": serving}}, "serve").resolve())
    assert set(found.footprint.phases("gpu")) == {"load", "prefill", "decode"}
    assert found.tiers["gpu0.gddr"].phase == "prefill"
    part = assess(
        scenario_of(
            {"topology": "desktop-rtx-3090", "workload": {"inference": serving | {"memory_utilisation": 0.5}}}, "serve"
        ).resolve()
    )
    assert part.tiers["gpu0.gddr"].capacity_bytes == 0.5 * found.tiers["gpu0.gddr"].capacity_bytes
    assert part.verdict == "does_not_fit"


def test_every_apu_of_a_node_holds_its_rank_and_its_part_of_the_host() -> None:
    training = {"model": "llama-2-7b", "framework": "fsdp", "parallelism": {"data": 4, "zero_stage": 3}}
    scenario = scenario_of({"topology": "mi300a-node", "workload": {"training": training}}, "apu").resolve()
    needs = capacity_plan(scenario.job.workload, scenario.job.placement, scenario.machine)
    sizes = [need.peak_bytes for name, need in needs.items() if name.endswith(".hbm")]
    assert len(sizes) == 4
    assert max(sizes) == pytest.approx(min(sizes))
    shown = run(scenario, with_penalty=False).summary.tiers
    assert [(name, tier.multiplicity) for name, tier in shown.items() if name.endswith(".hbm")] == [("gpu0.hbm", 4)]


def test_printed_answer_tells_margin_phase_terms_and_changes(capsys: pytest.CaptureFixture[str]) -> None:
    from sim.cli import run

    assert run(["fit", "out-of-memory-buffers", "--terms"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "does not fit cpu0.dram lacks 5.44 GiB" in text
    assert "cpu0.dram is 5.44 GiB short in phase init; its largest tensors: 16 GiB state swap buffers" in text
    assert "10 GiB weight swap buffers, from init = 5 buffers x 2 B x 1e+09 elements" in text
    assert "offload.buffer_elements: 200000000 -> cpu0.dram 27 GiB of 29.1 GiB, tight" in text
    assert "offload.sub_group_elements: 200000000 -> cpu0.dram 22.5 GiB of 29.1 GiB" in text


def test_printed_answer_says_when_nothing_helps(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from sim.cli import run

    file = tmp_path / "huge.yaml"
    job = "{model: llama-3.1-405b, sequence_length: 131072, batch_size: 64, framework: pytorch}"
    file.write_text(f"topology: desktop-rtx-3090\nworkload: {{training: {job}}}\n")
    assert run(["fit", str(file)]) == 1
    assert "No change, pair of changes or larger part" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_folded_memory_stands_for_all_of_its_kind(nodes: int) -> None:
    training = {"model": "llama-2-7b", "framework": "fsdp", "parallelism": {"data": 8 * nodes, "zero_stage": 3}}
    topology = {"base": "dgx-h100", "set": {"nodes": nodes}}
    shown = run(scenario_of({"topology": topology, "workload": {"training": training}}, "n").resolve(), with_penalty=False)
    counts = {name: tier.multiplicity for name, tier in shown.summary.tiers.items() if tier.peak_bytes > 0}
    assert counts == {"cpu0.dram": 2 * nodes, "gpu0.hbm": 8 * nodes}


def test_a_memory_that_no_folded_one_stands_for_is_shown() -> None:
    training = {"model": "gpt2", "parallelism": {"data": 1}}
    shown = run(scenario_of({"topology": "dgx-h100", "workload": {"training": training}}, "n").resolve(), with_penalty=False)
    assert {name: tier.multiplicity for name, tier in shown.summary.tiers.items() if tier.peak_bytes > 0} == {
        "cpu0.dram": 1,
        "gpu0.hbm": 1,
    }


def test_every_job_of_a_scenario_is_planned_on_its_own_host(capsys: pytest.CaptureFixture[str]) -> None:
    from sim.cli import run

    assert run(["fit", "two-jobs-one-pool", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["points"]
    assert (first["scenario"], second["scenario"]) == ("two-jobs-one-pool: first", "two-jobs-one-pool: second")
    assert "gpu0.hbm" in first["tiers"]
    assert "gpu1.hbm" in second["tiers"]
    assert run(["fit", "two-jobs-one-pool"]) == 0
    assert "each job is planned alone" in capsys.readouterr().out


def test_a_search_without_points_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from sim.cli import run

    assert run(["fit", "search-placement"]) == 2
    assert "there is no point to plan" in " ".join(capsys.readouterr().err.split())


def test_what_spills_is_planned_where_it_goes() -> None:
    job = LLAMA | {"optimizer": {"offload": True}}
    small = {"base": "rtx-5090-cxl", "set": {"cpu0.memory.capacity": "64 GiB"}}
    fails = assess(scenario(job, small))
    spills = assess(scenario(job, small, placement={"optimizer_states": "dram", "overflow": "spill"}))
    assert fails.verdict == "does_not_fit"
    assert spills.verdict != "does_not_fit"
    assert spills.tiers["cxl0"].peak_bytes > 0
    assert any("spill" in note for note in spills.notes)


def test_fewer_swap_buffers_are_suggested_down_to_the_four_of_an_update() -> None:
    job = LLAMA | {"offload": {"state_buffer_count": 64, "sub_group_elements": 100_000_000, "gradient_dtype": "bf16"}}
    small = {"base": "desktop-rtx-3090", "set": {"cpu0.memory.capacity": "48 GiB"}}
    found = assess(scenario(job, small, placement={"optimizer_states": "nvme"}))
    counts = [item.settings.get("workload.training.offload.state_buffer_count") for item in found.suggestions]
    assert found.verdict == "does_not_fit"
    assert any(count in (4, 8, 16, 32) for count in counts)


def test_each_row_of_several_jobs_names_its_job(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from sim.cli.fit import command

    file = tmp_path / "two.yaml"
    file.write_text(
        "topology: cxl-pool-2-hosts\n"
        "jobs:\n"
        "  - {name: small, host: host0, workload: {training: {model: gpt2, framework: ddp}}}\n"
        "  - {name: large, host: host1, workload: {training: {model: gpt2-xl, framework: ddp}}}\n"
        "sweep: {jobs.small.workload.training.batch_size: [1, 2]}\n"
    )
    command(str(file))
    rows = capsys.readouterr().out.splitlines()[2:6]
    assert [next(word for word in ("small", "large") if word in row) for row in rows] == ["small", "large"] * 2


@pytest.mark.parametrize("machine", ["dgx-spark", "mi300a-node", "apple-m3-ultra"])
def test_one_memory_for_both_needs_what_cpu_and_gpu_hold_at_one_moment(machine: str) -> None:
    # the copy of the model at load and the states of the update are never there together
    fit = assess(scenario({"model": "llama-3.2-3b", "batch_size": 1, "framework": "fsdp"}, machine))
    for tier, need in fit.tiers.items():
        assert need.peak_bytes == max(row.get(tier, 0.0) for row in fit.phases.values())
        assert sum(need.by_class.values()) == pytest.approx(need.peak_bytes, rel=1e-9)
