"""Capacities of services: limits of unified memory, page-locked layers."""

import pytest

from sim.config import scenario_of
from sim.study.fit import assess
from sim.units import GIB


def verdict(model: str, weights: str, share: str) -> tuple[str, float]:
    job = {"model": model, "weights": weights, "memory_utilisation": share, "prompt_length": 64, "output_length": 64}
    whole = {"base": "strix-halo", "set": {"gpu0.gpu_share": "100%"}}
    data = {"topology": whole, "workload": {"inference": job}}
    found = assess(next(iter(scenario_of(data).expand())), with_suggestions=False)
    (need,) = (need for name, need in found.tiers.items() if name.startswith("gpu0"))
    return found.verdict, need.capacity_bytes


@pytest.mark.parametrize(
    ("weights", "share", "expected"),
    [
        ("q4_k_m", "48.8%", "does_not_fit"),  # 85 GB of weights, 67 GB (62.5 GiB) for the GPU
        ("q4_k_m", "75%", "fits"),  # 85 of 103 GB
        ("q2_k", "48.8%", "fits"),  # 53 of 67 GB
    ],
)
def test_the_share_of_the_gpu_is_a_limit_of_its_own(weights, share, expected):
    assert verdict("mixtral-8x22b", weights, share)[0] == expected


def test_the_limit_that_binds_first_is_told():
    whole = verdict("qwen3-0.6b", "bf16", "100%")[1]
    assert whole >= 128e9
    assert verdict("mixtral-8x22b", "q4_k_m", "48.8%")[1] == pytest.approx(0.488 * whole)


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("strix-halo", "does_not_fit"),  # 62.5 of 128 GiB unless told
        ({"base": "strix-halo", "set": {"gpu0.gpu_share": "75%"}}, "fits"),
        ("mac-m3-max", "fits"),  # 96 of 128 GiB
        ({"base": "mac-m3-max", "set": {"gpu0.capacity": "96 GiB"}}, "does_not_fit"),
    ],
)
def test_the_system_gives_the_gpu_a_share_of_one_memory(topology, expected):
    """79 GiB of weights: antirez/ds4 issue 475, llama.cpp issue 3213."""
    job = {"model": "mixtral-8x22b", "weights": "q4_k_m", "prompt_length": 64, "output_length": 64}
    data = {"topology": topology, "workload": {"inference": job}}
    assert assess(next(iter(scenario_of(data).expand())), with_suggestions=False).verdict.replace("tight", "fits") == expected


def test_page_locked_layers_of_streamed_weights_round_up():
    """34 layers of 1.20 GiB took 2 GiB each in PyTorch's page-locked memory (sglang pull request 39021)."""
    model = {"layers": 50, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 20100, "vocabulary": 8192}

    def on_host(is_rounded: bool) -> float:
        job = {"model": model, "weights": "bf16", "round_pinned": is_rounded}
        placement = {"weights": {"gpu": "32%", "dram": "68%"}}
        data = {"topology": "desktop-rtx-5090", "workload": {"inference": job}, "placement": placement}
        found = assess(next(iter(scenario_of(data).expand())), with_suggestions=False)
        return found.tiers["cpu0.dram"].by_class["weights"] / 2**30

    assert on_host(False) == pytest.approx(40.9, rel=0.01)
    assert on_host(True) == pytest.approx(68.0, rel=0.01)


def suggested(topology) -> list[str]:
    job = {"model": "mixtral-8x22b", "weights": "q4_k_m", "framework": "vllm", "prompt_length": 64, "output_length": 64}
    found = assess(next(iter(scenario_of({"topology": topology, "workload": {"inference": job}}).expand())))
    return [item.change for item in found.suggestions if "gpu_share" in item.change]


def test_a_wider_share_for_the_gpu_is_suggested_where_it_suffices():
    (change,) = suggested("strix-halo")
    assert change.startswith("gpu0.gpu_share: 80% (the system gives it 0.488 of it by default")
    wider = {"base": "strix-halo", "set": {"gpu0.gpu_share": "80%"}}
    assert suggested(wider) == []  # it fits
    assert suggested({"base": "strix-halo", "set": {"gpu0.capacity": "64 GiB"}}) == []  # no share of 64 GiB holds 79


@pytest.mark.parametrize(("elements", "count", "gib"), [(100_000_000, 5, 5 * 0.25), (2_000_000_000, 3, 3 * 4)])
def test_weights_on_a_drive_pass_through_buffers_counted_in_elements(elements: int, count: int, gib: float) -> None:
    """DeepSpeed, offload_config.py: buffer_count page-locked buffers of buffer_size elements, each the next power of two."""
    inference = {
        "model": "opt-13b", "framework": "deepspeed-zero-inference", "weights": "fp16", "prompt_length": 64, "output_length": 8,
        "buffer_count": count, "buffer_elements": elements,
    }  # fmt: skip
    block = {
        "name": "x",
        "topology": "desktop-rtx-3090",
        "workload": {"inference": inference},
        "placement": {"weights": "nvme"},
    }
    terms = {term.name: term.size_bytes for term in assess(scenario_of(block).resolve()).footprint.terms if term.tier == "dram"}
    assert terms["weight swap buffers"] == gib * GIB
    assert terms["weights kept beside storage"] == 2e9
