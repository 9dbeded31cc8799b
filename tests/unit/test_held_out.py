"""Constants whose measurements are held out: what they were fitted on exists, and what stands in for them."""

from dataclasses import fields
from pathlib import Path

import pytest

from sim.config.parts import load_parts, part_names
from sim.config.priors import PRIORS, prior_of
from sim.held_out import Fitted, hold_out, is_held_out
from sim.laws import collectives, cpu, links, memory
from sim.study.row_files import read_rows
from sim.workload.frameworks import PROFILES, Profile, profile

ROOT = Path(__file__).parents[2]


@pytest.fixture
def forget():
    yield hold_out
    hold_out(())


def test_tables_and_their_publications_are_held_out(forget):
    assert not is_held_out(["a/t"])
    forget(["a/t"])
    assert is_held_out(["a/t"])
    assert is_held_out(["b/u", "a"])
    assert not is_held_out(["a/other"])
    assert not is_held_out([])
    forget(())
    assert not is_held_out(["a/t"])


def test_every_fit_names_tables_that_exist():
    rows = read_rows([ROOT / "scenarios" / "validation"])
    known = {row.table for row in rows} | {row.table.split("/")[0] for row in rows}
    fits = {
        source
        for part in load_parts(part_names()).source_keys.values()
        for source in part.values()
        if source.kind == "fit" or source.fitted_on
    }
    assert len(fits) > 20
    for source in fits:
        assert source.fitted_on, source.cite
        assert set(source.fitted_on) <= known, source.cite


def test_every_fitted_number_has_something_to_stand_in(forget):
    rows = read_rows([ROOT / "scenarios" / "validation"])
    forget({row.table for row in rows})
    catalogue = load_parts(part_names())
    left = {
        source.cite
        for part in catalogue.source_keys.values()
        for source in part.values()
        if source.kind == "fit" or source.fitted_on
    }
    assert left == set()
    assert catalogue.parts["pcie4"].efficiency == PRIORS["link", "efficiency"][0]
    assert "without its own measurements" in catalogue.sources["pcie4"]["efficiency"]


def test_a_number_falls_back_on_what_other_documents_say_before_a_prior(forget):
    fitted = load_parts(["nvlink-c2c"]).parts["nvlink-c2c"].efficiency
    forget(["gh200-fusco/matrix"])
    catalogue = load_parts(["nvlink-c2c"])
    assert catalogue.parts["nvlink-c2c"].efficiency == 0.833 != fitted
    assert "ICPP 2024" in catalogue.sources["nvlink-c2c"]["efficiency"]
    assert catalogue.parts["nvlink-c2c"].load_efficiency == PRIORS["link", "load_efficiency"][0]


def test_what_other_documents_say_is_held_out_with_their_own_tables(forget):
    forget(["mess-results/grace"])
    assert load_parts(["grace-120gb"]).parts["grace-120gb"].latency.idle == pytest.approx(170e-9)
    forget(["mess-results/grace", "gh200-fusco/latency"])
    idle = load_parts(["grace-120gb"]).sources["grace-120gb"]["latency.idle"]
    assert "without its own measurements" in idle


def test_the_nearest_key_decides_and_an_unknown_one_is_a_defect():
    assert prior_of("gpu", ("gemm_efficiency", "bf16"))[0] == PRIORS["gpu", "gemm_efficiency"][0]
    with pytest.raises(KeyError, match=r"no prior for gpu compute\.bf16"):
        prior_of("gpu", ("compute", "bf16"))


def test_a_framework_forgets_what_was_fitted_on_held_out_runs(forget):
    fitted = profile("deepspeed-zero")
    forget(["deep-optimizer-states/x"])
    plain = profile("deepspeed-zero")
    assert plain.hook_backward_s == fitted.priors["hook_backward_s"] < fitted.hook_backward_s
    assert plain.copy_share == Profile(name="", source="").copy_share != fitted.copy_share
    assert plain.bucket_elements == fitted.bucket_elements


def test_what_frameworks_were_fitted_on_exists():
    rows = read_rows([ROOT / "scenarios" / "validation"])
    known = {row.table for row in rows} | {row.table.split("/")[0] for row in rows}
    for item in PROFILES.values():
        assert {table for tables in item.fitted.values() for table in tables} <= known, item.name
        assert set(item.fitted) <= {entry.name for entry in fields(item)}, item.name


def test_a_laws_constant_stands_aside_with_its_tables(forget):
    constant = Fitted(2.0, 3.0, ("a/t",))
    assert constant.get() == 2.0
    forget(["a/t"])
    assert constant.get() == 3.0
    forget(["b/t"])
    assert constant.get() == 2.0


def test_the_laws_fits_name_tables_that_exist():
    rows = read_rows([ROOT / "scenarios" / "validation"])
    known = {row.table for row in rows}
    constants = [value for module in (cpu, links, memory, collectives) for value in vars(module).values()]
    fitted = [item for value in constants for item in (value.values() if isinstance(value, dict) else [value])]
    found = [item for item in fitted if isinstance(item, Fitted)]
    assert len(found) >= 11
    for item in found:
        assert set(item.fitted_on) <= known, item


def test_the_type_of_a_link_chooses_its_prior_first():
    assert prior_of("cxl link", ("efficiency",)) != prior_of("link", ("efficiency",))
    assert prior_of("pcie link", ("efficiency",)) == prior_of("link", ("efficiency",))


def test_a_framework_that_is_held_out_does_as_its_siblings(forget):
    known = profile("megatron-deepspeed")
    forget(["vtrain/single-node"])
    without = profile("megatron-deepspeed")
    assert known.dispatch_s_per_kernel != without.dispatch_s_per_kernel == profile("megatron").dispatch_s_per_kernel
    assert without.softmax_traffic == pytest.approx(34 / 9)  # counted, not fitted
    for found in PROFILES.values():
        assert set(found.priors) <= set(found.fitted), found.name
