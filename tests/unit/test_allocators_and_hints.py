"""Managed memory with hints, and memory of the system's allocator on one memory, two memories, and none that is coherent."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config import load_scenario, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.laws.paging import gpu_fault_rate
from sim.placement.access_counters import answer_while_moving_s


@cache
def times(scenario: str) -> dict[tuple[str, ...], float]:
    """Seconds per token by point; what does not fit takes for ever."""
    found = {}
    for point in load_scenario(f"tiers/{scenario}").expand():
        result = run(point, with_penalty=False)
        seconds = result.inference.time_per_output_token_s if result.fits and result.inference else float("inf")
        found[tuple(str(value) for value in point.parameters.values())] = seconds
    return found


def test_hints_change_nothing_while_the_weights_fit_and_order_what_does_not():
    found = times("managed-memory")
    assert len({round(seconds, 9) for (model, _), seconds in found.items() if model == "llama-2-7b"}) == 1
    big = {hint: seconds for (model, hint), seconds in found.items() if model == "llama-2-13b"}
    assert big["none"] > 1.2 * big["read mostly"] > 1.5 * big["prefetch"] > 1.9 * big["prefetch and read mostly"]
    assert big["stay on the host"] == pytest.approx(big["prefetch and read mostly"], rel=0.1)
    assert min(big.values()) > 20 * found["llama-2-7b", "none"]


@pytest.mark.parametrize(("layers", "is_slow"), [(36, False), (40, True)])
def test_the_cliff_of_managed_memory_stands_where_the_weights_outgrow_the_card(layers, is_slow):
    shape = {"layers": layers, "hidden": 5120, "heads": 40, "ffn": 13824, "vocabulary": 32000, "mlp": "swiglu"}
    inference = {"model": shape, "prompt_length": 32, "output_length": 4, "is_managed": True}
    result = run(
        scenario_of({"topology": "desktop-rtx-4090", "workload": {"inference": inference}}).resolve(), with_penalty=False
    )
    assert result.inference is not None
    assert (result.inference.time_per_output_token_s > 1.0) is is_slow


def test_a_clean_page_is_dropped_instead_of_written_back():
    link = 25e9
    assert 1 / gpu_fault_rate(link) - 1 / gpu_fault_rate(link, is_clean=True) == pytest.approx(1 / link)


def test_an_apu_reads_small_pages_slower_and_a_superchip_ends_where_the_device_began():
    found = times("allocators")
    assert found["MI300A, 13B", "malloc"] == pytest.approx(found["MI300A, 13B", "managed"])
    assert found["MI300A, 13B", "malloc"] == pytest.approx(1.22 * found["MI300A, 13B", "device"], rel=0.05)
    assert found["GH200, 13B", "malloc"] == pytest.approx(found["GH200, 13B", "device"], rel=1e-6)
    assert found["GH200, 13B", "malloc, bound to the CPU"] > 8 * found["GH200, 13B", "device"]


def test_counters_fill_gpu_memory_and_no_more():
    found = times("allocators")
    assert found["GH200, 70B", "device"] == float("inf")
    assert found["GH200, 70B", "malloc"] < 0.6 * found["GH200, 70B", "malloc, bound to the CPU"] < float("inf")


def test_the_first_answer_from_system_memory_is_read_over_the_link():
    inference = {"model": "llama-2-13b", "prompt_length": 64, "output_length": 16, "is_system": True}
    result = run(scenario_of({"topology": "gh200", "workload": {"inference": inference}}).resolve(), with_penalty=False)
    first, last = result.tiering[0], result.tiering[-1]
    assert first.fast_access_share == 0.0
    assert last.fast_access_share == pytest.approx(1.0)
    assert first.step_time_s > 7 * last.step_time_s
    assert sum(step.promoted_bytes for step in result.tiering) == pytest.approx(26.03e9, rel=0.01)  # 13.0e9 weights, once
    assert all(step.demoted_bytes == 0.0 for step in result.tiering)
    assert any(note.startswith("pages move for") for note in result.assumptions)


@pytest.mark.parametrize(
    ("topology", "inference", "message"),
    [
        ("desktop-rtx-4090", {"is_system": True}, "gpu0 cannot load from the host's memory: it has no coherent link"),
        ("gh200", {"is_system": True, "is_managed": True}, "is_system: the weights are in managed memory already"),
        ("gh200", {"managed_advice": ["prefetch"]}, "the weights are not in managed memory; add is_managed: true"),
        ("gh200", {"is_managed": True, "managed_advice": ["stay", "prefetch"]}, "pages that stay on the host never move"),
        ("gh200", {"is_managed": True, "managed_advice": ["prefech"]}, "managed_advice"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(topology, inference, message):
    with pytest.raises(InputError, match=message):
        scenario_of({"topology": topology, "workload": {"inference": {"model": "llama-2-7b", **inference}}}).resolve()


def played_s(prefill_s: float, token_s: float, later_s: float, num_tokens: int, moved: float, rate: float) -> float:
    """Token after token, each at the speed of the pages that have arrived when it begins."""
    now = prefill_s
    for _ in range(num_tokens):
        now += token_s + (later_s - token_s) * min(1.0, rate * now / moved)
    return now


@pytest.mark.parametrize("num_tokens", [10, 400, 4000])
def test_pages_that_arrive_within_an_answer_speed_up_its_later_tokens(num_tokens: int) -> None:
    arguments = (0.5, 40e-3, 8e-3, num_tokens, 60e9, 11e9)  # all have arrived after 5.5 s
    assert answer_while_moving_s(*arguments) == pytest.approx(played_s(*arguments), rel=0.01)


@given(st.floats(0, 5), st.floats(1e-3, 0.1), st.floats(0.05, 1), st.integers(0, 500), st.floats(0, 1e12), st.floats(1e9, 1e11))
def test_an_answer_lies_between_all_pages_here_and_all_there(
    prefill_s: float, token_s: float, gain: float, num_tokens: int, moved: float, rate: float
) -> None:
    later_s = gain * token_s
    found = answer_while_moving_s(prefill_s, token_s, later_s, num_tokens, moved, rate)
    assert (prefill_s + num_tokens * later_s) * (1 - 1e-9) <= found <= (prefill_s + num_tokens * token_s) * (1 + 1e-9)


def test_the_first_answer_on_a_superchip_moves_its_pages_while_it_runs() -> None:
    def rows(output_length: int) -> tuple[float, float]:
        inference = {"model": "llama-2-13b", "weights": "fp16", "prompt_length": 128, "output_length": output_length}
        answers = [
            run(scenario_of({"topology": "gh200", "workload": {"inference": inference | more}}).resolve(), with_penalty=False)
            for more in ({"is_system": True}, {})
        ]
        return answers[0].tiering[0].step_time_s, answers[1].summary.step_time_s

    short, fast = rows(32)
    assert short > 2 * fast  # most tokens come before their pages
    long, fast = rows(2000)
    assert fast < long < 1.3 * fast  # 26 GB take 2.4 s of 20
