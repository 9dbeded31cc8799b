"""The built-in model shapes: one module per family, one row per model, each with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sim.workload.models.row import Row

#: other names of built-in shapes: spellings, and models tuned from another one's weights
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
    "llama-3.1-nemotron-70b": "llama-3.1-70b",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "alpaca-7b": "llama-7b",
    "vicuna-7b": "llama-2-7b",
    "vicuna-13b": "llama-2-13b",
    "vicuna-33b": "llama-30b",
    "open-llama-7b": "llama-7b",
    "open-llama-13b": "llama-13b",
    "zephyr-7b": "mistral-7b",
    "mistral-7b-v0.1": "mistral-7b",
    "mistral-7b-v0.2": "mistral-7b",
    "mistral-nemo": "mistral-nemo-12b",
    "mistral-small": "mistral-small-24b",
    "mistral-small-3.1-24b": "mistral-small-24b",
    "mistral-small-3.2-24b": "mistral-small-24b",
    "codestral-22b": "mistral-small-22b",
    "mistral-large": "mistral-large-123b",
    "mixtral": "mixtral-8x7b",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "mixtral-8x22b-v0.1": "mixtral-8x22b",
    "deepseek-7b": "deepseek-llm-7b",
    "deepseek-67b": "deepseek-llm-67b",
    "deepseek-v2.5": "deepseek-v2",
    "deepseek-coder-v2": "deepseek-v2",
    "deepseek-coder-v2-lite": "deepseek-v2-lite",
    "deepseek-v3.1": "deepseek-v3",
    "deepseek-r1": "deepseek-v3",
    "deepseek-r1-671b": "deepseek-v3",
    "deepseek-v3-671b": "deepseek-v3",
    "deepseek-r1-distill-qwen-7b": "qwen2.5-7b",
    "deepseek-r1-distill-qwen-14b": "qwen2.5-14b",
    "deepseek-r1-distill-qwen-32b": "qwen2.5-32b",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.3-70b",
    "qwen2.5-coder-0.5b": "qwen2.5-0.5b",
    "qwen2.5-coder-1.5b": "qwen2.5-1.5b",
    "qwen2.5-coder-3b": "qwen2.5-3b",
    "qwen2.5-coder-7b": "qwen2.5-7b",
    "qwen2.5-coder-14b": "qwen2.5-14b",
    "qwen2.5-coder-32b": "qwen2.5-32b",
    "qwen2.5-math-1.5b": "qwen2.5-1.5b",
    "qwen2.5-math-7b": "qwen2.5-7b",
    "qwen2.5-math-72b": "qwen2.5-72b",
    "qwq-32b": "qwen2.5-32b",
    "qwen3-coder-30b-a3b": "qwen3-30b-a3b",
    "yi-1.5-6b": "yi-6b",
    "yi-1.5-9b": "yi-9b",
    "yi-1.5-34b": "yi-34b",
    "internlm2.5-7b": "internlm2-7b",
    "internlm2-5-7b": "internlm2-7b",
    "internlm2.5-20b": "internlm2-20b",
    "internlm2-5-20b": "internlm2-20b",
    "chatglm3-6b": "chatglm2-6b",
    "phi-3.5-mini": "phi-3-mini",
    "phi-3-mini-3.8b": "phi-3-mini",
    "falcon3-7b": "falcon-3-7b",
    "falcon3-10b": "falcon-3-10b",
    "granite-3.0-2b": "granite-3-2b",
    "granite-3.1-2b": "granite-3-2b",
    "granite-3.0-8b": "granite-3-8b",
    "granite-3.1-8b": "granite-3-8b",
    "olmo2-7b": "olmo-2-7b",
    "olmo2-13b": "olmo-2-13b",
    "smollm3": "smollm3-3b",
    "command-r": "command-r-35b",
    "command-r-plus": "command-r-plus-104b",
    "gptj-6b": "gpt-j-6b",
    "gpt-j": "gpt-j-6b",
    "gpt-neox": "gpt-neox-20b",
    "bloom": "bloom-176b",
    "bloomz": "bloom-176b",
    "bloomz-560m": "bloom-560m",
    "bloomz-1b1": "bloom-1b1",
    "bloomz-1b7": "bloom-1b7",
    "bloomz-3b": "bloom-3b",
    "bloomz-7b1": "bloom-7b1",
    "starcoder": "starcoder-15b",
    "starcoderbase": "starcoder-15b",
    "bert-base-uncased": "bert-base",
    "bert-large-uncased": "bert-large",
    "kimi-k2-thinking": "kimi-k2",
}
#: parts of a published name that do not change the shape, in the order in which they are left out
_TUNED = re.compile(
    r"-(?:meta|c4ai|unsloth|instruct|chat|base|it|pt|hf|hybrid|thinking|preview|beta|gguf|mlx|bf16|fp16|\d+k|1m)(?=-|$)"
)
_DATE = re.compile(r"-\d{4}(?=-|$)")
_VERSION = re.compile(r"-v\d+(?:\.\d+)*(?=-|$)")
#: how the file of a model is quantised: the shape stays, the bytes do not
_STORED = re.compile(
    r"-(?:gptq|awq|bnb|qat|dynamic|quantized|w4a16|w8a8|(?:int|fp|mxfp|nvfp)\d+|\d+bit|i?q\d(?:-[0-9a-z]{1,2}){0,2})(?=-|$)"
)


def spellings(name: str) -> tuple[str, ...]:
    """Names to look up for a published one, the closest first: `meta-llama/Llama-2-7b-chat-hf` -> ..., `llama-2-7b`."""
    whole = re.sub(r"[_:]", "-", name.strip().lower())
    found = [whole, whole.rsplit("/", 1)[-1]]  # organisation/model, as on the Hugging Face hub
    for pattern in (_TUNED, _DATE, _VERSION):
        found.append(pattern.sub("", f"-{found[-1]}").lstrip("-"))
    return tuple(dict.fromkeys(found))


def without_format(name: str) -> str:
    """The name without how its file is quantised (`llama-3-8b-bnb-4bit` -> `llama-3-8b`)."""
    return _STORED.sub("", "-" + re.sub(r"[_:]", "-", name.strip().lower())).lstrip("-")


def rows() -> dict[str, Row]:
    """All families in one table: name -> arguments of ModelShape."""
    from sim.workload.models import gpt, llama, mixture, open_dense, open_llama, qwen

    table: dict[str, Row] = {}
    for family in (gpt, llama, open_llama, qwen, open_dense, mixture):
        table |= family.rows()
    return table
