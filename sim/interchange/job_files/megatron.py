"""A command line of Megatron-LM or Megatron-DeepSpeed (pretrain_gpt.py) -> settings of a scenario.

Names, defaults and rules as in megatron/training/arguments.py and megatron/core/transformer/transformer_config.py; old names
as in the releases of 2020 to 2023 and in Megatron-DeepSpeed's arguments.py.
"""

from __future__ import annotations

from sim.errors import Fault, InputError
from sim.interchange.job_files.block import Block
from sim.interchange.job_files.launcher import Launch
from sim.interchange.job_files.megatron_model import model_of
from sim.interchange.job_files.settings import JobSettings, Known, ranks_that_divide
from sim.interchange.job_files.shell_words import UNKNOWN, unknown_names

#: options that change nothing here, by their beginnings
_INERT_STARTS = (
    "accumulate-allreduce", "adam-", "adlr", "align-", "apply-query", "apply-residual", "async-", "attention-",
    "auto-detect", "barrier", "bert-", "bias-", "calculate", "check-", "checkpoint-in-cpu", "checkpoint-num", "ckpt",
    "clip-", "clone-", "compression-", "config-", "consumed", "contigious", "cpu-offloading", "create-moe",
    "cross-entropy", "data-", "dataloader", "dataset", "ddp-", "decoupled", "deepspeed-", "defer-", "delay-",
    "deterministic", "dist-", "distribute", "embedding-", "empty-unused", "enable-experimental", "enable-one",
    "end-weight", "eod-", "eval-", "exit-", "expert-tensor", "extra-vocab", "finetune", "force-", "fp16-",
    "fp32-residual", "fp8-", "fsdp-", "grad-reduce", "gradient-", "hidden-dropout", "high-priority", "hysteresis",
    "init-method", "init-model", "initial-loss", "inprocess", "iterations", "kitchen", "layernorm-", "lazy-", "lm-",
    "load", "local-rank", "log-", "loss-scale", "lr", "manual-gc", "mask-", "masked-", "max-padding", "merge-file",
    "min-loss", "min-lr", "mmap", "mock-data", "moe-aux", "moe-expert-capacity", "moe-grouped", "moe-input", "moe-pad",
    "moe-per", "moe-router", "moe-shared-expert-overlap", "moe-token", "moe-use", "moe-z", "mpu", "mscale", "mtp-loss",
    "nccl-", "no-async", "no-bias", "no-check", "no-create", "no-data", "no-gradient", "no-initialization", "no-load",
    "no-log", "no-masked", "no-mmap", "no-persist", "no-query", "no-rope", "no-save", "non-persistent", "norm-epsilon",
    "num-channels", "num-dataset", "openai-gelu", "optimizer-", "override", "partition-", "patch-tokenizer", "perform-",
    "pin-", "profile", "query-in", "rampup", "rank", "record-", "remote-device", "rerun-", "reset-", "rotary-",
    "sample-rate", "save", "seed", "sgd-", "short-seq", "skip-", "special-", "split", "start-weight", "straggler",
    "synchronize", "te-rng", "tensorboard", "test-data", "tiktoken", "timing", "tokenizer-", "tp-comm", "train-",
    "transformer-pipeline", "truncate", "universal", "use-checkpoint", "use-cpu", "use-dist-ckpt", "use-mcore", "use-one",
    "use-pin", "use-pytorch", "use-ring", "use-rope", "use-tp-pp", "valid-", "vocab-file", "wandb", "weight-decay",
    "window-", "world-size", "zero-allgather", "zero-contigious", "zero-reduce",
)  # fmt: skip
_OPTIMIZERS = {
    "adam": "adamw",
    "adamw": "adamw",
    "sgd": "sgd_momentum",
    "hybridadam": "adamw",
    "muon": "muon",
    "dist_muon": "muon",
    "lion": "lion",
}
_STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_REFUSED = {
    "hybrid-override-pattern": "state-space layers", "is-hybrid-model": "state-space layers",
    "heterogeneous-layers-config-path": "layers that differ", "linear-attention-type": "linear attention",
    "experimental-attention-variant": "another kind of attention", "encoder-num-layers": "an encoder-decoder",
    "decoder-num-layers": "an encoder-decoder", "retro-encoder-layers": "a second encoder",
}  # fmt: skip
_PROGRAMS = {"pretrain_t5.py": "an encoder-decoder", "pretrain_mamba.py": "state-space layers", "pretrain_vlm.py": "two towers",
             "pretrain_vision_classify.py": "images", "pretrain_ict.py": "two towers", "pretrain_retro.py": "a second encoder",
             "pretrain_hybrid.py": "state-space layers"}  # fmt: skip


def read_megatron(launch: Launch, known: Known) -> JobSettings:
    """Settings that the command asks for.

    Raises InputError with every fault: a value that only a run would tell, a type, a batch that does not divide, a model
    that is not modelled.
    """
    root = launch.options
    _refuse(launch)
    found = JobSettings(gpus=known.gpus or launch.gpus, nodes=launch.nodes)
    found.resolved += [
        f"{condition}: taken as false" if "not known" in condition else condition for condition in launch.undecided
    ]
    found.shape = model_of(root, found, known.vocabulary, is_encoder=launch.program == "pretrain_bert.py")
    if length := root.count(root.first("seq-length", "encoder-seq-length"), least=1):
        found.training["sequence_length"] = length
    _numbers(root, found)
    _framework(root, found)
    _parallelism(root, found)
    _optimizer(root, found)
    _recomputation(root, found)
    _batch(root, known, found)
    unused, unknown = root.rest([key for key in root.data if key.startswith(_INERT_STARTS)])
    found.unused += unused
    found.unknown += unknown
    root.stop()
    return found


def _refuse(launch: Launch) -> None:
    root = launch.options
    for key, value in root.data.items():
        if isinstance(value, str) and UNKNOWN in value and not key.startswith(_INERT_STARTS):
            name = unknown_names(value)[0]
            why = f" ({launch.undecided[0]})" if launch.undecided else ""
            remedy = f"give it with --define {name[1:]}=VALUE" if name[0] == "$" else "write the value into the script"
            root.fault(key, f"{name} is known to a run of the script only{why}", remedy)
    root.stop()
    what = _PROGRAMS.get(launch.program, "") or next((_REFUSED[key] for key in _REFUSED if key in root), "")
    if what:
        raise InputError(Fault(what=f"trains a model with {what}, which is not modelled", file=root.file,
                               remedy="decoders of pretrain_gpt.py and pretrain_bert.py are read"))  # fmt: skip


def _numbers(root: Block, found: JobSettings) -> None:
    fp8, recipe = root.get(root.first("fp8-format", "fp8-hybrid", "fp8-e4m3", "fp8")), root.word("fp8-recipe")
    if root.get(root.first("fp4-format", "fp4")):
        precision = "nvfp4"
    elif fp8:
        precision = "mxfp8" if recipe == "mxfp8" else "fp8"
    else:
        precision = "bf16" if root.flag("bf16") else "fp16" if root.flag("fp16") else "fp32"
        if precision == "fp32":
            found.resolved.append("neither --bf16 nor --fp16: trains in fp32")
    for key in ("bf16", "fp16"):
        root.asked.add(key)
    found.training["precision"] = precision
    dropouts = [root.number(key) for key in ("attention-dropout", "hidden-dropout")]
    found.training["dropout"] = any(0.1 if value is None else value for value in dropouts)  # 0.1 where the command is silent
    if root.flag("cross-entropy-loss-fusion"):
        found.training["loss"] = "fused"
    if (workers := root.count("num-workers")) is not None:
        found.training["data.workers"] = workers


def _framework(root: Block, found: JobSettings) -> None:
    """Which Megatron it is, by the options that only one of them has."""
    is_old = root.has("model-parallel-size", "checkpoint-activations", "use-legacy-models", "DDP-impl") or (
        root.data.get("transformer-impl") == "local"
    )
    for key in ("transformer-impl", "use-legacy-models", "DDP-impl", "use-mcore-models", "deepspeed"):
        root.asked.add(key)
    if root.has("deepspeed"):
        is_zero = bool(root.count("zero-stage"))
        found.training["framework"] = "deepspeed-megatron" if is_zero else "megatron-deepspeed"
    else:
        found.training["framework"] = "megatron" if is_old else "megatron-core"
    is_flash = root.has("use-flash-attn", "use-flash-attn-v2", "use-flash-attn-triton", "use-fused-attn")
    for key in ("use-flash-attn", "use-flash-attn-v2", "use-flash-attn-triton", "use-fused-attn", "flash-decode"):
        root.asked.add(key)
    backend = root.word("attention-backend")
    is_eager = backend in ("unfused", "local") or (found.training["framework"] != "megatron-core" and not is_flash)
    found.training["attention"] = "eager" if is_eager else "flash"
    if is_eager and backend is None:
        found.resolved.append("no --use-flash-attn: attention keeps its scores")


def _parallelism(root: Block, found: JobSettings) -> None:
    training = found.training
    for keys, ours in (
        (("tensor-model-parallel-size", "model-parallel-size"), "tensor"),
        (("pipeline-model-parallel-size",), "pipeline"),
        (("context-parallel-size",), "context"),
        (("expert-model-parallel-size", "moe-expert-parallel-size"), "expert"),
    ):
        if (size := root.count(root.first(*keys), least=1)) and size > 1:
            training[f"parallelism.{ours}"] = size
    if root.flag("no-pipeline-parallel"):
        training.pop("parallelism.pipeline", None)
    if root.flag("sequence-parallel") and training.get("parallelism.tensor", 1) > 1:
        training["parallelism.sequence_parallel"] = True
    if root.flag("tp-comm-overlap") and training.get("parallelism.tensor", 1) > 1:
        training["parallelism.overlap_tensor"] = True
    stages, layers = int(training.get("parallelism.pipeline", 1)), int(found.shape["layers"])
    each = root.count("num-layers-per-virtual-pipeline-stage", least=1)
    chunks = root.count("num-virtual-stages-per-pipeline-rank", least=1) or (layers // stages // each if each else 1)
    if stages > 1 and chunks > 1:
        training["parallelism.interleave"] = chunks
    if root.flag("overlap-moe-expert-parallel-comm"):
        training["parallelism.overlap_experts"] = True
    if root.flag("moe-enable-deepep") or root.word("moe-flex-dispatcher-backend") in ("deepep", "hybridep"):
        training["parallelism.exchange_by_node"] = True
    stage = 1 if root.flag("use-distributed-optimizer") else 0
    strategy = root.word("data-parallel-sharding-strategy")
    if root.flag("use-torch-fsdp2"):
        stage = 3
    elif root.has("use-megatron-fsdp", "use-custom-fsdp"):
        stage = _STRATEGIES.get(strategy or "no_shard", -1)
        if stage < 0:
            root.fault("data-parallel-sharding-strategy", f"expected {', '.join(_STRATEGIES)}, got {strategy!r}")
    root.asked.update(("use-megatron-fsdp", "use-custom-fsdp", "overlap-grad-reduce", "overlap-param-gather"))
    given = root.count("zero-stage")
    training["parallelism.zero_stage"] = stage if given is None else min(given, 3)


def _optimizer(root: Block, found: JobSettings) -> None:
    name = (root.word("optimizer") or "adam").lower()
    if name not in _OPTIMIZERS:
        root.fault("optimizer", f"optimizer {name!r} is not modelled", f"use one of {', '.join(_OPTIMIZERS)}")
    else:
        found.training["optimizer.type"] = _OPTIMIZERS[name]
    is_aware = root.flag("use-precision-aware-optimizer")
    kept = [root.word(key) for key in ("exp-avg-dtype", "exp-avg-sq-dtype", "main-params-dtype", "main-grads-dtype")]
    if is_aware and all(dtype in ("bf16", "fp16") for dtype in kept[:2]):
        found.training["optimizer.precision"] = "bf16"
    if root.has("optimizer-cpu-offload", "cpu-optimizer", "cpu-offload") or name == "hybridadam":
        found.placement["optimizer_states"] = "dram"
        share = root.number("optimizer-offload-fraction")
        if share is not None and share > 1:
            root.fault("optimizer-offload-fraction", f"expected a share from 0 to 1, got {share:g}")
        elif share is not None and share < 1:
            found.training["optimizer.gpu_fraction"] = round(1 - share, 6)
        if root.flag("overlap-cpu-optimizer-d2h-h2d"):
            found.training["offload.overlap_update"] = True
    root.asked.update(("optimizer-cpu-offload", "cpu-optimizer", "cpu-offload", "cpu-torch-adam"))
    if layers := root.count("cpu-offloading-num-layers", least=1):
        found.training["offload.activation_layers"] = f"0-{layers - 1}"
    if remote := root.word("remote-device"):
        tier = {"cpu": "dram", "nvme": "nvme", "none": ""}.get(remote)
        if tier is None:
            root.fault("remote-device", f"expected none, cpu or nvme, got {remote!r}")
        elif tier:
            found.placement["weights"] = tier


def _recomputation(root: Block, found: JobSettings) -> None:
    old = root.has("checkpoint-activations", "deepspeed-activation-checkpointing")
    granularity = root.word(root.first("recompute-granularity", "activations-checkpoint-granularity"))
    if root.has("recompute-activations"):
        granularity = granularity or "selective"
    granularity = granularity or ("full" if old else None)
    method = root.word(root.first("recompute-method", "activations-checkpoint-method"))
    count = root.count(
        root.first("recompute-num-layers", "activations-checkpoint-num-layers", "checkpoint-num-layers"), least=1
    )
    root.asked.update(
        ("recompute-modules", "checkpoint-activations", "deepspeed-activation-checkpointing", "recompute-activations")
    )
    if granularity is None:
        found.training["checkpointing.active"] = False
        return
    if granularity not in ("full", "selective"):
        root.fault("recompute-granularity", f"expected full or selective, got {granularity!r}")
        return
    found.training["checkpointing.active"] = True
    if granularity == "selective":
        found.training["checkpointing.mode"] = "selective"
    elif count and method == "block":
        found.training["checkpointing.layers"] = count
    elif count and count > 1:
        found.training["checkpointing.interval"] = count
    if root.flag("checkpoint-in-cpu"):
        found.training["checkpointing.offload"] = True


def _batch(root: Block, known: Known, found: JobSettings) -> None:
    """global batch = micro-batch x data-parallel ranks x accumulation, as Megatron asserts."""
    micro = root.count(root.first("micro-batch-size", "batch-size"), least=1) or known.batch_size or 1
    total = root.count("global-batch-size", least=1)
    found.training["batch_size"] = micro
    others = 1
    for kind in ("tensor", "pipeline", "context"):
        others *= int(found.training.get(f"parallelism.{kind}", 1))
    gpus = found.gpus
    if not gpus and total:  # as many as the machine has and the batch divides by
        gpus = others * ranks_that_divide(total, micro, known.gpus_at_most // others)
    found.gpus = gpus
    ranks = max(gpus // others, 1)
    if gpus % others:
        what = f"{gpus} GPUs are no multiple of tensor x pipeline x context = {others}"
        root.fault(root.first("tensor-model-parallel-size", "model-parallel-size"), what, "name the number of GPUs with --gpus")
    elif total and total % (micro * ranks):
        what = f"is {total}, no multiple of micro-batch {micro} x {ranks} data-parallel ranks"
        root.fault("global-batch-size", what, "Megatron refuses this; name the number of GPUs with --gpus")
    elif total:
        found.training["gradient_accumulation"] = total // (micro * ranks)
    shared = root.count("num-distributed-optimizer-instances", least=1) or 1
    if shared > 1 and ranks % shared == 0:
        found.training["parallelism.shard_group"] = ranks // shared
