"""The model that a Megatron command describes by its dimensions -> an inline shape."""

from __future__ import annotations

import ast
import re
from typing import Any

from sim.interchange.job_files.block import Block
from sim.interchange.job_files.settings import JobSettings

#: tokens of the vocabularies that a tokenizer's type names
_VOCABULARIES = {
    "GPT2BPETokenizer": 50257, "BertWordPieceLowerCase": 30522, "BertWordPieceCase": 28996, "Llama2Tokenizer": 32000,
    "GPTSentencePieceTokenizer": 32000,
}  # fmt: skip
_ASSUMED_VOCABULARY = 50257


def model_of(root: Block, found: JobSettings, vocabulary: int, *, is_encoder: bool) -> dict[str, Any]:
    """The inline shape. `vocabulary`: tokens of the tokenizer that the command names; 0 = not known.

    What is missing or wrong is a fault of `root`, what had to be assumed goes to `found.resolved`.
    """
    layers, hidden, heads = (root.count(key, least=1) for key in ("num-layers", "hidden-size", "num-attention-heads"))
    for key, value in (("num-layers", layers), ("hidden-size", hidden), ("num-attention-heads", heads)):
        if value is None and not any(fault.path == key for fault in root.faults):
            root.fault(key, "is not given", "name the model with --model")
    layers, hidden, heads = layers or 1, hidden or 1, heads or 1
    is_gated = bool(root.flag("swiglu"))
    root.asked.update(("squared-relu", "tokenizer-model", "tokenizer-type"))
    shape: dict[str, Any] = {"name": f"megatron-{layers}x{hidden}", "layers": layers, "hidden": hidden, "heads": heads}
    width = root.count("ffn-hidden-size", least=1)
    shape["ffn"] = width or (int(4 * hidden * 2 / 3) // 64 * 64 if is_gated else 4 * hidden)
    shape["mlp"] = "swiglu" if is_gated else "gelu"
    shape["norm"] = "rmsnorm" if (root.word("normalization") or "").lower() == "rmsnorm" else "layernorm"
    has_bias = not root.flag("disable-bias-linear")
    shape |= {"attention_bias": has_bias or bool(root.flag("add-qkv-bias")), "output_bias": has_bias, "mlp_bias": has_bias}
    groups = root.count(root.first("num-query-groups", "num-key-value-heads"), least=1)
    is_grouped = root.flag("group-query-attention") is not False and groups is not None
    if is_grouped and groups != heads:
        shape["kv_heads"] = groups
    if channels := root.count("kv-channels", least=1):
        shape["head_dim"] = channels
    if root.flag("qk-layernorm"):
        shape["qk_norm"] = True
    shape["tied_embeddings"] = not root.flag("untie-embeddings-and-output-weights")
    _positions(root, shape)
    shape["vocabulary"] = _vocabulary(root, found, vocabulary)
    if root.flag("multi-latent-attention"):
        _latent(root, shape)
    _experts(root, shape)
    _window(root, shape)
    if is_encoder:
        shape["causal"] = False
    if depth := root.count("mtp-num-layers"):
        found.resolved.append(f"mtp-num-layers: {depth} more layers predict further tokens; they are left out")
    return shape


def _positions(root: Block, shape: dict[str, Any]) -> None:
    kind = root.word("position-embedding-type") or "learned_absolute"
    if root.flag("use-rotary-position-embeddings"):
        kind = "rope"
    if root.flag("use-alibi-position-embeddings"):
        kind = "alibi"
    longest = root.count("max-position-embeddings", least=1) or root.count(root.first("seq-length", "encoder-seq-length")) or 0
    shape["max_positions"] = longest
    shape["position"] = "learned" if kind == "learned_absolute" else kind if kind in ("alibi", "none") else "rope"
    if root.flag("no-position-embedding") and shape["position"] == "learned":
        shape["position"] = "none"


def _vocabulary(root: Block, found: JobSettings, known: int) -> int:
    """Tokens, padded so that each tensor rank holds a multiple of 128 of them."""
    if padded := root.count("padded-vocab-size", least=1):
        return padded
    kind = root.word("tokenizer-type") or ""
    size = root.count("vocab-size", least=1)
    if size and kind == "NullTokenizer":
        size += 1  # its end of text
    if size is None:
        size = known or _VOCABULARIES.get(kind) or _ASSUMED_VOCABULARY
        is_assumed = not known and kind not in _VOCABULARIES
        source = "assumed, GPT-2's" if is_assumed else f"of {root.data.get('tokenizer-model') if known else kind}"
        found.resolved.append(f"vocabulary: {size:,} tokens, {source}" + (" (--vocab-size tells)" if is_assumed else ""))
    tensor = root.count(root.first("tensor-model-parallel-size", "model-parallel-size"), least=1) or 1
    step = (root.count("make-vocab-size-divisible-by", least=1) or 128) * tensor
    return -(-size // step) * step


def _latent(root: Block, shape: dict[str, Any]) -> None:
    """Multi-head latent attention, with the defaults of Megatron's MLATransformerConfig."""
    shape["attention_type"] = "mla"
    shape["q_lora_rank"] = root.count("q-lora-rank") or 0
    for key, ours, default in (
        ("kv-lora-rank", "kv_lora_rank", 512), ("qk-head-dim", "head_dim", 128),
        ("qk-pos-emb-head-dim", "qk_rope_head_dim", 64), ("v-head-dim", "v_head_dim", 128),
    ):  # fmt: skip
        shape[ours] = root.count(key, least=1) or default
    shape.pop("qk_norm", None)  # the norms of the latent vectors are part of this attention
    shape.pop("kv_heads", None)


def _experts(root: Block, shape: dict[str, Any]) -> None:
    number = root.count("num-experts", least=1)
    if number is None or number == 1:
        for key in ("moe-router-topk", "topk", "moe-ffn-hidden-size", "moe-layer-freq", "moe-shared-expert-intermediate-size"):
            root.asked.add(key)
        return
    shape |= {"experts": number, "experts_per_token": root.count(root.first("moe-router-topk", "topk"), least=1) or 2}
    shape["expert_ffn"] = root.count("moe-ffn-hidden-size", least=1) or shape["ffn"]
    if shared := root.count("moe-shared-expert-intermediate-size", least=1):
        shape["shared_expert_ffn"] = shared
    if root.flag("moe-router-enable-expert-bias"):
        shape["router_bias"] = True
    groups, taken = root.count("moe-router-num-groups", least=1), root.count("moe-router-group-topk", least=1)
    if groups and taken and taken < groups:
        shape["group_share"] = taken / groups
    if (frequency := root.get("moe-layer-freq")) is not None:
        layers = _pattern(str(frequency), int(shape["layers"]))
        if layers is None:
            root.fault("moe-layer-freq", f"expected a number or a list of 0 and 1 for each layer, got {str(frequency)[:60]!r}")
        else:
            shape["moe_layers"] = layers


def _pattern(text: str, layers: int) -> int | None:
    """Mixture layers of `2` (every second, from the first) or `([0]*3+[1]*58)`; None where it is neither."""
    if text.isdigit() and int(text):
        return -(-layers // int(text))
    try:
        kinds = _listed(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return sum(kinds) if len(kinds) == layers and set(kinds) <= {0, 1} else None


def _listed(node: ast.expr) -> list[int]:
    if isinstance(node, ast.List) and all(isinstance(one, ast.Constant) and type(one.value) is int for one in node.elts):
        return [one.value for one in node.elts]  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _listed(node.left) + _listed(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant):
        times = node.right.value
        if isinstance(times, int) and 0 <= times <= 10_000:
            return _listed(node.left) * times
    raise ValueError


def _window(root: Block, shape: dict[str, Any]) -> None:
    given = root.get("window-size")
    if given is None:
        return
    numbers = re.findall(r"-?\d+", str(given))
    if not numbers or int(numbers[0]) <= 0:
        return
    shape["sliding_window"] = int(numbers[0]) + 1  # so many keys to the left of the query itself
    if every := root.count("window-attn-skip-freq", least=1):
        shape["full_attention_every"] = every
