"""Launch scripts of Megatron become scenarios: what a shell would make of them, what the options mean, what is refused."""

from pathlib import Path
from typing import Any

import pytest

from sim.cli import run
from sim.config import load_scenario
from sim.errors import InputError
from sim.interchange.job_files.shell_script import read_script
from sim.interchange.job_files.shell_words import unknown_names
from sim.study.job_import import Asked, ImportedJob, write_job
from sim.study.job_megatron import defined, import_megatron
from sim.workload.shape import ModelShape
from sim.workload.shapes import parameters

SIZES = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --micro-batch-size 1 "
H100 = Asked(topology="dgx-h100")


def job(tmp_path: Path, text: str, asked: Asked = H100, given: dict[str, str] | None = None) -> ImportedJob:
    file = tmp_path / "pretrain.sh"
    file.write_text(text)
    return import_megatron(file, asked, given)


def training(tmp_path: Path, options: str, launcher: str = "torchrun --nproc_per_node 8") -> dict[str, Any]:
    return job(tmp_path, f"{launcher} pretrain_gpt.py {SIZES} {options}").document["workload"]["training"]


def refusal(tmp_path: Path, text: str, given: dict[str, str] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        job(tmp_path, text, given=given)
    return str(caught.value)


def words(text: str, folder: Path = Path(), **given: str) -> list[list[str]]:
    return read_script(text, given, folder).commands


# ------------------------------------------------------------------------------------------------------------- the shell


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("run --a 1 \\\n  --b 2 # not --c", ["run", "--a", "1", "--b", "2"]),
        ("A=2\nB=$((A*4))\nrun $A ${B} \"$A $B\" '$A'", ["run", "2", "8", "2 8", "$A"]),
        ("A=(\n --x 1  # why\n --y \"2 3\"\n)\nrun \"${A[@]}\"", ["run", "--x", "1", "--y", "2 3"]),
        ("A=(1)\nA+=(2)\nB=x\nB+=\" y\"\nrun ${A[@]} $B ${#A[@]} ${A[1]}", ["run", "1", "2", "x", "y", "2", "2"]),
        ("A=${A:-7}\nB=${B:=8}\nrun $A ${C-9} ${A:+set}", ["run", "7", "9", "set"]),
        ("A=70B\nif [ $A = 7B ]; then N=1; elif [[ $A == \"70B\" ]]; then N=2; else N=3; fi\nrun $N", ["run", "2"]),
        ("A=7\nif (( A > 6 )) && [ ! -z \"$A\" ]; then N=1; else N=2; fi\nrun $N", ["run", "1"]),
        ("A=7B\ncase $A in\n 1B|7B) N=1;;\n *) N=2 ;;\nesac\nrun $N", ["run", "1"]),
        ("f() {\n  run $1 --last \"$@\"\n}\nf a b", ["run", "a", "--last", "a", "b"]),
        ("cmd=\"run --a 1 \\\n --b 2\"\neval $cmd", ["run", "--a", "1", "--b", "2"]),
        ("A=\"--x 1\"\nsrun -N 2 bash -c \"run $A\"", ["srun", "-N", "2", "bash", "run", "--x", "1"]),
        ("for n in 1 2 3; do\n run $n\ndone", ["run", "1"]),
        ("A=cfg/x.json\nrun ${A%.json} ${A##*/} ${A//\\//_}", ["run", "cfg/x", "x.json", "cfg_x.json"]),
        ("TP=4\nX=$(( ($TP > 1) ? 1 : 0 ))\nrun $X 2>&1 | tee log", ["run", "1"]),
        ("sbatch <<EOF\n#!/bin/bash\nrun --a 1\nEOF", ["run", "--a", "1"]),
        ("A=1 B=2 run $A", ["run", "\0A\0"]),
    ],
)  # fmt: skip
def test_words_are_what_a_shell_would_make_of_them(text: str, command: list[str]) -> None:
    if text.startswith("A=1 B=2 run"):
        command = ["run", "1"]  # a shell expands before it assigns; scripts that rely on it are not known
    assert command in words(text)


def test_text_in_windows_lines_and_a_script_that_is_taken_in(tmp_path: Path) -> None:
    (tmp_path / "sizes.sh").write_text("N=12\r\n")
    assert ["run", "12"] in words("source sizes.sh\r\nrun $N\r\n", tmp_path)


def test_what_only_a_run_tells_keeps_its_name() -> None:
    (command,) = words("run $NOWHERE $(date) ${10} `pwd`/x")
    assert [unknown_names(word) for word in command[1:]] == [
        ["$NOWHERE"],
        ["the output of a command"],
        ["$10"],
        ["the output of a command"],
    ]


def test_a_branch_that_is_not_known_is_left_out_and_told() -> None:
    script = read_script("N=1\nif [ $MODE = big ]; then N=2; fi\nrun $N", {}, Path())
    assert script.commands == [["run", "1"]]
    assert script.undecided == ["line 2: [ $MODE = big ] ($MODE not known)"]
    assert read_script("N=1\nif [ $MODE = big ]; then N=2; fi\nrun $N", {"MODE": "big"}, Path()).commands == [["run", "2"]]


@pytest.mark.parametrize(
    "text", ["f() { f; }\nf", "while true; do run; done", "eval eval eval", "if [", "case", "for", "$((1/0))", "A=(", "'"]
)
def test_hostile_text_ends(text: str) -> None:
    assert isinstance(words(text), list)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A=x\n" + 'A="$A$A"\n' * 40 + "run $A", "grows beyond"),
        ("A=(x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40 + "run $A", "grows beyond"),
        ("f() {\nf a; f b\n}\nf", "call each other more than"),
        ('A=\'eval "$A"; eval "$A"\'\neval "$A"', "call each other more than"),
    ],
)
def test_what_grows_without_bound_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        words(text)


# ------------------------------------------------------------------------------------------------------------ the options


@pytest.mark.parametrize(
    ("options", "parallelism"),
    [
        ("", {"zero_stage": 0, "data": 8}),
        ("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel",
         {"tensor": 2, "pipeline": 2, "sequence_parallel": True, "zero_stage": 0, "data": 2}),
        ("--sequence-parallel --use-distributed-optimizer", {"zero_stage": 1, "data": 8}),
        ("--tensor-model-parallel-size 2 --tp-comm-overlap", {"tensor": 2, "overlap_tensor": True, "zero_stage": 0, "data": 4}),
        ("--tp-comm-overlap", {"zero_stage": 0, "data": 8}),
        ("--context-parallel-size=4", {"context": 4, "zero_stage": 0, "data": 2}),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
         {"pipeline": 4, "interleave": 4, "zero_stage": 0, "data": 2}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", {"zero_stage": 2, "data": 8}),
        ("--use-torch-fsdp2", {"zero_stage": 3, "data": 8}),
        ("--num-experts 8 --expert_model_parallel_size 8 --moe-router-topk 2 --moe-enable-deepep",
         {"expert": 8, "exchange_by_node": True, "zero_stage": 0, "data": 8}),
        ("--use-distributed-optimizer --num-distributed-optimizer-instances 2", {"zero_stage": 1, "data": 8, "shard_group": 4}),
    ],
)  # fmt: skip
def test_parallelism(tmp_path: Path, options: str, parallelism: dict[str, Any]) -> None:
    assert training(tmp_path, options)["parallelism"] == parallelism


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ("--bf16", "precision", "bf16"),
        ("--bf16 --fp8-format hybrid", "precision", "fp8"),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", "precision", "mxfp8"),
        ("--bf16 --fp4-format e2m1", "precision", "nvfp4"),
        ("", "precision", "fp32"),
        ("--recompute-activations", "checkpointing", {"active": True, "mode": "selective"}),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 4", "checkpointing",
         {"active": True, "layers": 4}),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2", "checkpointing",
         {"active": True, "interval": 2}),
        ("--checkpoint-activations", "checkpointing", {"active": True}),
        ("--checkpoint-activations", "framework", "megatron"),
        ("", "framework", "megatron-core"),
        ("--deepspeed --zero-stage 1", "framework", "deepspeed-megatron"),
        ("--deepspeed", "framework", "megatron-deepspeed"),
        ("--attention-backend unfused", "attention", "eager"),
        ("--global-batch-size 64", "gradient_accumulation", 8),
        ("--attention-dropout 0 --hidden-dropout 0.0", "dropout", False),
        ("--hidden-dropout 0", "dropout", True),
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", "optimizer",
         {"type": "adamw", "precision": "bf16"}),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.75 --overlap-cpu-optimizer-d2h-h2d", "optimizer",
         {"type": "adamw", "gpu_fraction": 0.25}),
        ("--cpu-offloading-num-layers 4", "offload", {"activation_layers": "0-3"}),
        ("--num-workers 2", "data", {"workers": 2}),
    ],
)  # fmt: skip
def test_options(tmp_path: Path, options: str, key: str, value: object) -> None:
    assert training(tmp_path, options)[key] == value


LLAMA3 = ("--swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
          "--position-embedding-type rope --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 "
          "--vocab-size 128256")  # fmt: skip
V3 = ("--num-layers 61 --hidden-size 7168 --num-attention-heads 128 --ffn-hidden-size 18432 --swiglu --normalization RMSNorm "
      "--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 129280 "
      "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim "
      "128 --num-experts 256 --moe-layer-freq ([0]*3+[1]*58) --moe-ffn-hidden-size 2048 --moe-router-topk 8 "
      "--moe-shared-expert-intermediate-size 2048 --moe-router-enable-expert-bias --qk-layernorm")  # fmt: skip


@pytest.mark.parametrize(
    ("options", "total"),
    [
        (LLAMA3, 8_030_261_248),
        (V3, 671_026_419_200),
        ("--vocab-size 50257 --make-vocab-size-divisible-by 1 --max-position-embeddings 1024 --num-layers 12 --hidden-size 768 "
         "--num-attention-heads 12", 124_439_808),
    ],
)  # fmt: skip
def test_models_have_the_parameters_of_their_publishers(tmp_path: Path, options: str, total: int) -> None:
    assert parameters(ModelShape(**training(tmp_path, options)["model"])).total == total


@pytest.mark.parametrize(
    ("options", "vocabulary"),
    [
        ("--tokenizer-type Llama2Tokenizer", 32000),
        ("--tokenizer-type GPT2BPETokenizer", 50304),
        ("--tokenizer-type GPT2BPETokenizer --tensor-model-parallel-size 8", 51200),
        ("--tokenizer-type NullTokenizer --vocab-size 131071", 131072),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B", 128256),
        ("--padded-vocab-size 50300", 50300),
    ],
)
def test_vocabulary_is_padded_as_by_megatron(tmp_path: Path, options: str, vocabulary: int) -> None:
    assert training(tmp_path, options)["model"]["vocabulary"] == vocabulary


@pytest.mark.parametrize(
    ("launcher", "gpus"),
    [
        ("torchrun --nproc-per-node=4 --nnodes=2", 8),
        ("python -m torch.distributed.launch --nproc_per_node 2", 2),
        ("srun --ntasks-per-node=8 -N 2 python", 16),
        ("mpirun -np 16 python", 16),
        ("deepspeed --num_nodes 2 --num_gpus 8", 16),
    ],
)
def test_gpus_are_those_that_the_launcher_starts(tmp_path: Path, launcher: str, gpus: int) -> None:
    assert training(tmp_path, "", launcher)["parallelism"]["data"] == gpus


def test_nodes_of_a_batch_script_become_nodes_of_the_machine(tmp_path: Path) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:h100:8\nsrun python pretrain_gpt.py {SIZES}"
    document = job(tmp_path, text).document
    assert document["topology"] == {"base": "dgx-h100", "set": {"nodes": 4}}
    assert document["workload"]["training"]["parallelism"]["data"] == 32


def test_a_deepspeed_configuration_that_the_script_writes_is_read(tmp_path: Path) -> None:
    text = f"""STAGE=2
NAME=$(date)
cat <<EOT > ds_$NAME.json
{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": $STAGE, "offload_optimizer": {{"device": "cpu"}}}}}}
EOT
opts="{SIZES} --fp16 --deepspeed --deepspeed_config=ds_$NAME.json --zero-stage $STAGE"
eval "deepspeed --num_gpus 8 pretrain_gpt.py $opts"
"""
    document = job(tmp_path, text).document
    assert document["placement"] == {"optimizer_states": "dram"}
    assert document["workload"]["training"]["parallelism"]["zero_stage"] == 2
    assert document["workload"]["training"]["framework"] == "deepspeed-megatron"


def test_arguments_that_a_run_printed(tmp_path: Path) -> None:
    rows = {"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 4096, "micro_batch_size": 2,
            "world_size": 16, "tensor_model_parallel_size": 2, "bf16": True, "fp16": False, "add_bias_linear": False,
            "swiglu": True, "num_experts": None, "padded_vocab_size": 32000, "position_embedding_type": "rope"}  # fmt: skip
    text = "INFO: rank 0\n-------- arguments --------\n" + "".join(
        f"  {name} {'.' * (40 - len(name))} {value}\n" for name, value in rows.items()
    )
    found = job(tmp_path, text).document["workload"]["training"]
    assert found["parallelism"] == {"tensor": 2, "zero_stage": 0, "data": 8}
    assert (found["batch_size"], found["precision"], found["model"]["mlp_bias"]) == (2, "bf16", False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--global-batch-size 12", "global-batch-size: is 12, no multiple of micro-batch 1 x 8 data-parallel ranks"),
        ("--tensor-model-parallel-size 3", "8 GPUs are no multiple of tensor x pipeline x context = 3"),
        ("--optimizer shampoo", "optimizer 'shampoo' is not modelled"),
        ("--recompute-granularity half", "expected full or selective, got 'half'"),
        ("--hybrid-override-pattern M-M*", "state-space layers"),
        ("--num-experts 8 --moe-layer-freq [1]*3", "moe-layer-freq: expected a number or a list"),
        ("--pipeline-model-parallel-size two", "pipeline-model-parallel-size: expected a number, got 'two'"),
        ("--global-batch-size $GBS", "$GBS is known to a run of the script only"),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 2", "expected a share from 0 to 1"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, options: str, said: str) -> None:
    assert said in refusal(tmp_path, f"torchrun --nproc_per_node 8 pretrain_gpt.py {SIZES} {options}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo hello", "has no command that trains a model"),
        (". CONFIG.sh\nsrun $MORE", "CONFIG.sh, which it takes in, is not beside it"),
        (f"torchrun pretrain_t5.py {SIZES}", "an encoder-decoder"),
        ("torchrun pretrain_gpt.py --num-layers 2 --micro-batch-size 1", "hidden-size: is not given"),
        (f"M=$3\ntorchrun pretrain_gpt.py {SIZES} --ffn-hidden-size $M", "give it with --define 3=VALUE"),
    ],
)
def test_scripts_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


def test_given_variables_and_unset_ones(tmp_path: Path) -> None:
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SIZES} --ffn-hidden-size $2 --bf16 $MORE"
    assert job(tmp_path, text, given=defined(["2=11008"])).document["workload"]["training"]["model"]["ffn"] == 11008
    with pytest.raises(InputError, match="is no NAME=VALUE"):
        defined(["MODEL 7B"])


def test_a_model_by_name_stands_in_for_the_dimensions(tmp_path: Path) -> None:
    found = job(tmp_path, f"torchrun pretrain_gpt.py {SIZES}", Asked(model="llama-3-8b", topology="dgx-h100"))
    assert found.document["workload"]["training"]["model"] == "llama-3-8b"


def test_the_command_writes_a_scenario_that_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, target = tmp_path / "p.sh", tmp_path / "job.yaml"
    file.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {SIZES} {LLAMA3} --bf16 --micro-batchsize 2 --lr 1e-4")
    assert run(["import", "megatron", str(file), "--topology", "dgx-h100", "-o", str(target)]) == 0
    printed = capsys.readouterr().out
    assert "unknown   micro-batchsize (p.sh:1); did you mean 'micro-batch-size'?" in printed
    assert "not used  lr" in printed
    assert load_scenario(target).name == "p"


def test_nothing_is_written_of_a_job_that_cannot_run(tmp_path: Path) -> None:
    found = job(
        tmp_path, f"torchrun --nproc_per_node 8 pretrain_gpt.py {SIZES} --pipeline-model-parallel-size 8 --num-layers 4"
    )
    with pytest.raises(InputError):
        write_job(found, tmp_path / "out.yaml")
    assert not (tmp_path / "out.yaml").exists()
