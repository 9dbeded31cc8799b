"""The built-in model shapes: one module per family, one row per model, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]

#: other spellings of built-in names
ALIASES: Mapping[str, str] = {
    "gpt2-small": "gpt2",
    "gpt-2": "gpt2",
    "gpt-2-xl": "gpt2-xl",
    "gpt2-1.5b": "gpt2-xl",
    "gpt3": "gpt3-175b",
    "gpt-3": "gpt3-175b",
    "gpt-3-175b": "gpt3-175b",
    "llama-1-7b": "llama-7b",
    "llama-1-13b": "llama-13b",
    "llama-1-30b": "llama-30b",
    "llama-33b": "llama-30b",
    "llama-1-65b": "llama-65b",
    "llama2-7b": "llama-2-7b",
    "llama2-13b": "llama-2-13b",
    "llama2-70b": "llama-2-70b",
    "llama-2-7b-hf": "llama-2-7b",
    "llama-2-13b-hf": "llama-2-13b",
    "llama-2-70b-hf": "llama-2-70b",
    "llama3-8b": "llama-3-8b",
    "llama3-70b": "llama-3-70b",
    "meta-llama-3-8b": "llama-3-8b",
    "meta-llama-3-70b": "llama-3-70b",
    "llama3.1-8b": "llama-3.1-8b",
    "llama3.1-70b": "llama-3.1-70b",
    "llama3.1-405b": "llama-3.1-405b",
    "llama3-405b": "llama-3.1-405b",
    "llama-3-405b": "llama-3.1-405b",
    "llama3.2-1b": "llama-3.2-1b",
    "llama3.2-3b": "llama-3.2-3b",
    "llama3.3-70b": "llama-3.3-70b",
    "mistral-7b-v0.1": "mistral-7b",
    "mixtral": "mixtral-8x7b",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "mixtral-8x22b-v0.1": "mixtral-8x22b",
    "deepseek-r1": "deepseek-v3",
    "gptj-6b": "gpt-j-6b",
    "gpt-neox": "gpt-neox-20b",
    "bloom": "bloom-176b",
    "glm-4-9b-chat": "glm-4-9b",
}


def rows() -> dict[str, Row]:
    """All families in one table: name -> arguments of ModelShape."""
    from sim.workload.models import gpt, llama, mixture, open_dense, qwen

    table: dict[str, Row] = {}
    for family in (gpt, llama, qwen, open_dense, mixture):
        table |= family.rows()
    return table
