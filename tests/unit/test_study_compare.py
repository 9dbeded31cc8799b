"""Comparison: the parts sum to the difference, the verdicts are honest, the tables say the same."""

import csv
import json
import math

import pytest

from sim.cli import run as tiersim
from sim.config import load_machine
from sim.config.prices import prices_from
from sim.config.scenario_file import scenario_of
from sim.config.yaml_source import parse_yaml
from sim.errors import InputError
from sim.experiment import run
from sim.metrics.monitor import monitor
from sim.metrics.stages import stages_s
from sim.study.budget import budget_of, power_w
from sim.study.compare import Candidate, candidate_of, compare
from sim.study.compare_table import comparison_rows, to_csv, to_markdown
from sim.study.sources import name_of

DATA = {
    "topology": "epyc-9554p-2x4090",
    "workload": {
        "training": {
            "model": {"layers": 4, "hidden": 2048, "heads": 16, "ffn": 8192, "vocabulary": 32000},
            "sequence_length": 512,
            "parallelism": {"data": 2, "zero_stage": 2},
            "dataset": {"samples": 1001, "epochs": 2, "length": {"mean": 128}},
        }
    },
    "placement": {"optimizer_states": "dram"},
}


def file_of(**changes):
    return scenario_of({**DATA, **changes}, "tiny")


@pytest.fixture(scope="module")
def comparison():
    file = file_of()
    overlays = {"x16": {}, "x4": {"topology.gpu0.link.lanes": 4, "topology.gpu1.link.lanes": 4}, "x16 again": {}}
    return compare([candidate_of(file.resolve(overlay), name) for name, overlay in overlays.items()])


def test_stages_and_resources_sum_to_the_difference(comparison):
    slower, same = comparison.differences
    expected = slower.candidate.seconds - comparison.baseline.seconds
    assert expected > 0
    assert math.isclose(sum(part.difference_s for part in slower.stages), expected, rel_tol=1e-9)
    assert math.isclose(sum(part.difference_s for part in slower.resources), expected, rel_tol=1e-6)
    assert any("pcie" in part.name and part.difference_s > 0 for part in slower.resources)
    assert all(part.difference_s == 0 for part in same.stages)


def test_verdicts(comparison):
    slower, same = comparison.differences
    assert "slower" in slower.verdict or "more time" in slower.verdict
    assert (same.ratio, same.verdict) == (1.0, "within model error")


@pytest.mark.parametrize(
    ("seconds", "family", "verdict"),
    [
        (1.049, "a", "within model error"),
        (1.051, "a", "5 % more time"),
        (1.2, "b", "within model error"),
        (1.3, "b", "30 % more time"),
        (0.7, "a", "30 % less time"),
        (2.5, "a", "2.5 x slower"),
        (0.25, "a", "4 x faster"),
    ],
)
def test_model_error_decides_what_counts_as_a_difference(seconds, family, verdict):
    def candidate(step_s, name):
        band = {"low_s": 0.85 * step_s, "high_s": 1.15 * step_s}
        return Candidate(name=name, point={"fits": True, "step_time_s": step_s, "uncertainty": band}, family=name)

    (difference,) = compare([candidate(1.0, "a"), candidate(seconds, family)]).differences
    assert difference.verdict == verdict


@pytest.mark.parametrize(
    ("step_s", "tokens", "ratio", "verdict"),
    [
        (1.0, 1000.0, 1.0, "within model error"),
        (1.5, 2000.0, 0.75, "25 % less time per token"),
        (2.02, 2000.0, 1.01, "within model error per token"),
        (0.9, 400.0, 2.25, "2.25 x slower per token"),
        (1.5, 1000.0 * (1 + 1e-9), 1.5, "50 % more time"),
    ],
)
def test_steps_of_unequal_numbers_of_tokens_are_compared_per_token(step_s, tokens, ratio, verdict):
    points = [{"fits": True, "step_time_s": s, "tokens_per_s": n / s} for s, n in [(1.0, 1000.0), (step_s, tokens)]]
    (difference,) = compare(
        [Candidate(name=name, point=point, family="a") for name, point in zip("ab", points, strict=True)]
    ).differences
    assert difference.ratio == pytest.approx(ratio)
    assert difference.verdict == verdict
    assert difference.is_per_token == ("per token" in verdict)


def test_answers_of_unequal_batches_are_compared_by_their_time_per_output_token():
    points = [{"fits": True, "time_per_output_token_s": s, "tokens_per_s": rate} for s, rate in [(0.02, 50.0), (0.03, 266.0)]]
    (difference,) = compare([Candidate(name=name, point=point) for name, point in zip("ab", points, strict=True)]).differences
    assert (difference.verdict, difference.is_per_token) == ("50 % more time", False)


def test_a_misfit_is_named_and_its_time_is_not_a_win():
    fits = Candidate(name="a", point={"fits": True, "step_time_s": 2.0})
    misfit = Candidate(name="b", point={"fits": False, "step_time_s": None, "step_time_if_it_fitted_s": 1.0})
    (difference,) = compare([fits, misfit]).differences
    assert difference.verdict == "does not fit"


def test_tables_agree_and_escape(comparison):
    rows = {row[0]: row[1:] for row in comparison_rows(comparison)}
    assert rows["against the baseline"][0] == "baseline"
    assert rows["fits"] == ("yes", "yes", "yes")
    parsed = list(csv.DictReader(to_csv(comparison).splitlines()))
    assert [float(row["step_time_s"]) for row in parsed] == [c.seconds for c in comparison.candidates]
    assert float(parsed[1]["ratio"]) == comparison.differences[0].ratio
    hostile = compare([Candidate(name="a|b", point={"fits": True}), Candidate(name="c", point={"fits": True})])
    assert to_markdown(hostile).splitlines()[0] == "|  | a\\|b | c |"


def test_command_line(tmp_path, capsys):
    path = tmp_path / "one.yaml"
    path.write_text(json.dumps({**DATA, "compare": {"baseline": {"topology.gpu1.link.lanes": 4}}}))
    assert tiersim(["compare", str(path), "--out", str(tmp_path / "c"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["baseline"] == "baseline (gpu1.link.lanes 4)"
    assert printed["differences"][0]["ratio"] < 1
    assert (tmp_path / "c" / "waterfall-1.png").stat().st_size > 5000
    path.write_text(json.dumps(DATA))
    assert tiersim(["compare", str(path)]) == 2
    assert "nothing to compare with" in capsys.readouterr().err
    assert tiersim(["run", str(path), "--out", str(tmp_path / "r"), "--no-plots"]) == 0
    capsys.readouterr()
    assert tiersim(["compare", str(tmp_path / "r" / "one"), str(path)]) == 0
    assert "within model error" in capsys.readouterr().out
    assert tiersim(["compare", str(tmp_path), str(path)]) == 2


# ------------------------------------------------------------------------------------------------- stages and monitor


@pytest.fixture(scope="module")
def replayed():
    return run(file_of(options={"level": "full"}).resolve())


def test_stages_refine_the_breakdown(replayed):
    stages = stages_s(replayed.program, replayed.replay)
    breakdown = replayed.summary.breakdown_s
    for key, seconds in breakdown.items():
        mine = sum(value for (_phase, category), value in stages.items() if category == key)
        assert math.isclose(mine, seconds, rel_tol=1e-9, abs_tol=1e-12)
    assert {phase for phase, _ in stages} >= {"forward", "backward", "update"}


def test_monitor_conserves_bytes_and_stays_in_range(replayed):
    program, replay = replayed.program, replayed.replay
    samples = monitor(program, replay, replay.makespan_s / 7.5, replayed.summary.tiers)
    assert len(samples) == 8
    assert samples[-1].time_s == replay.makespan_s
    edges = [0.0, *(sample.time_s for sample in samples)]
    totals = {total.name: total.amount for total in replay.channels}
    for name in samples[0].links_bytes_per_s:
        carried = sum(s.links_bytes_per_s[name] * (b - a) for s, a, b in zip(samples, edges, edges[1:], strict=False))
        assert math.isclose(carried, totals[name], rel_tol=1e-9)
    for sample in samples:
        assert all(0 <= device.busy <= 1 for device in sample.devices.values())
    peak = max(sample.devices["cpu0"].memory_bytes for sample in samples)
    assert peak <= replayed.summary.tiers["cpu0.dram"].peak_bytes * (1 + 1e-9)


# ------------------------------------------------------------------------------------------------------------- budgets

PRICES = """
currency: EUR
date: 2026-01-15
source: a quotation
parts: {rtx-4090: {value: 2000}, epyc-9554p: {value: 4000}, dram: {value: 4, per: GiB}, nvme-pcie4-2tb: {value: 150}}
per_hour: {epyc-9554p-2x4090: {value: 3}}
electricity: {value: 0.25}
"""


def test_budgets_by_hand():
    scenario = file_of().resolve()
    prices = prices_from(parse_yaml(PRICES, "prices.yaml"))
    budget = budget_of(scenario, 3.6, prices)
    # 1001 samples x 2 epochs, each padded to one sequence; 2 ranks x 1 sequence per step
    assert budget.num_steps == 1001
    assert math.isclose(budget.duration_s, 1001 * 3.6)
    assert math.isclose(budget.useful_tokens_per_s, 2002 * 128 / (1001 * 3.6))
    assert budget.power_w >= 360 + 2 * 450
    assert math.isclose(budget.rent, 3 * 1001 * 3.6 / 3600)
    assert math.isclose(budget.electricity, 0.25 * budget.power_w * 1001 * 3.6 / 3.6e6)
    assert math.isclose(budget.purchase, 4000 + 2 * 2000 + 512 * 4 + 4 * 150)
    packed = file_of(
        workload={
            "training": {
                **DATA["workload"]["training"],
                "dataset": {"samples": 1001, "epochs": 2, "length": {"mean": 128}, "packing": True},
            }
        }
    )
    assert budget_of(packed.resolve(), 3.6).num_steps == math.ceil(2002 * 128 / 512 / 2)
    assert budget_of(packed.resolve(), 3.6).purchase is None


def test_a_part_without_a_price_is_named_and_leaves_the_price_open():
    lacking = prices_from(parse_yaml(PRICES.replace("nvme-pcie4-2tb", "another-drive"), "prices.yaml"))
    budget = budget_of(file_of().resolve(), 3.6, lacking)
    assert budget.purchase is None
    assert budget.unpriced == ("nvme-pcie4-2tb",)


@pytest.mark.parametrize("machine", ["mi300a-node", "dgx-spark", "strix-halo"])
def test_the_cpu_of_an_apu_is_inside_its_rated_power(machine):
    found = load_machine(machine)
    rated = sum(found.part(gpu)["power"] for gpu in found.gpus())
    assert power_w(found) == found.num_nodes * rated > 0


def test_points_of_one_sweep_go_without_the_name_of_their_scenario():
    assert name_of("", {"topology": "gh200", "workload.training.batch_size": 2}) == "gh200, batch size 2"
    assert name_of("which", {"topology": "gh200"}) == "which: gh200"
    assert name_of("which", {}) == "which"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("currency: EUR", ""), "currency"),
        (("source: a quotation", ""), "without source"),
        (("date: 2026-01-15", "date: soon"), "expected a date"),
        (("date: 2026-01-15", ""), "without date"),
        (("{value: 2000}", "{value: 0}"), "above 0"),
        (("{value: 2000}", "2000"), "expected {value, source}"),
        (("per: GiB", "per: TB"), "unknown unit"),
        (("{value: 2000}", "{value: 2000, currency: USD}"), "in a file of 'EUR'"),
        (("electricity:", "power:"), "unknown key"),
    ],
)
def test_prices_without_provenance_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        prices_from(parse_yaml(PRICES.replace(*change), "prices.yaml"))


def test_each_point_of_a_sweep_meets_its_own_baseline():
    from sim.study.compare import compare_pairs
    from sim.study.sources import pairs_from

    sweep = {"workload.training.batch_size": [1, 2]}
    file = file_of(sweep=sweep, compare={"baseline": {"placement.optimizer_states": "gpu"}})
    comparison = compare_pairs(pairs_from(file))
    for size, difference in zip((1, 2), comparison.differences, strict=True):
        alone = run(file.resolve({"workload.training.batch_size": size, "placement.optimizer_states": "gpu"}))
        assert difference.baseline.seconds == alone.summary.step_time_s
        assert difference.ratio == difference.candidate.seconds / alone.summary.step_time_s
    rows = {row[0]: row[1:] for row in comparison_rows(comparison)}
    assert len(rows["its baseline"]) == 2
    assert rows["its baseline"][0] != rows["its baseline"][1]
    assert pairs_from(file_of(sweep=sweep)) == []


def test_many_candidates_are_lines_and_few_are_columns(tmp_path, capsys):
    import yaml

    from sim.cli import run as tiersim

    training = {"model": "gpt2", "batch_size": 1, "sequence_length": 64}
    sweep = {"workload.training.batch_size": [1, 2, 3, 4, 5, 6]}
    file = tmp_path / "many.yaml"
    file.write_text(yaml.safe_dump({"training": training, "topology": "epyc-9554p-2x4090", "sweep": sweep}), encoding="utf-8")
    assert tiersim(["compare", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["fits", "step", "time"]
    assert [line.split()[:3] for line in lines[1:7]] == [["batch", "size", str(size)] for size in range(1, 7)]
    sweep["workload.training.batch_size"] = [1, 2]
    file.write_text(yaml.safe_dump({"training": training, "topology": "epyc-9554p-2x4090", "sweep": sweep}), encoding="utf-8")
    assert tiersim(["compare", str(file)]) == 0
    assert any(line.startswith("fits ") for line in capsys.readouterr().out.splitlines())
