"""`tiersim import`: foreign files in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sim.study.job_import import ImportedJob

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    """Read foreign files: recordings, machines, measurements, configurations.

    Example: tiersim import deepspeed ds_config.json --model llama-2-13b --topology dgx-a100
    """


@app.command()
def trace(
    files: Annotated[
        list[Path], typer.Argument(help="recording; several, or a tar = the ranks of one job", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="trace file to write; default: beside the input")
    ] = None,
    step: Annotated[int | None, typer.Option(help="recorded step, from 0; default: the one of median duration")] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="tensor class of recorded copies: 'h2d phase=update min=1MB = optimizer_states'", show_default=False),
    ] = None,
    source_part: Annotated[str, typer.Option(help="GPU it was recorded on, if the file does not say")] = "",
    ranks: Annotated[int, typer.Option(min=0, help="ranks of the job, where the file does not say")] = 0,
    element_bytes: Annotated[
        float, typer.Option(min=0, help="bytes per element, for Chakra files that count elements (STAGE)")
    ] = 1.0,
) -> None:
    """Turn a PyTorch profiler trace, a PyTorch execution trace or a Chakra file into a tiersim trace.

    Example: tiersim import trace rank0.pt.trace.json.gz -o step.jsonl
    """
    from sim.cli.trace import lines_of
    from sim.interchange.load import load_trace
    from sim.interchange.rules import parse_rules
    from sim.interchange.statistics import statistics
    from sim.interchange.step_file import write_step

    loaded = load_trace(
        list(files),
        step=step,
        rules=parse_rules(rule or ()),
        source_part=source_part,
        num_ranks=ranks,
        element_bytes=element_bytes,
    )
    target = output or files[0].with_name(files[0].name.split(".")[0] + ".step.jsonl")
    write_step(loaded, target)
    for line in lines_of(statistics(loaded)):
        typer.echo(line, err=True)
    typer.echo(str(target))


@app.command()
def machine(
    output: Annotated[Path, typer.Option("-o", "--output", help="topology file to write")] = Path("machine.yaml"),
    name: Annotated[str, typer.Option(help="name of the machine; default the output's")] = "",
    gpu: Annotated[str, typer.Option(help="part of the GPUs where no file names it; see `tiersim list parts`")] = "",
    hwloc: Annotated[list[Path] | None, typer.Option(help="lstopo FILE.xml (hwloc 2 or 3)", show_default=False)] = None,
    numactl: Annotated[
        list[Path] | None, typer.Option(help="numactl --hardware, lscpu, or both in one file", show_default=False)
    ] = None,
    topo: Annotated[
        list[Path] | None, typer.Option(help="nvidia-smi topo -m, rocm-smi --showtopo, amd-smi topology", show_default=False)
    ] = None,
    mlc: Annotated[list[Path] | None, typer.Option(help="Intel Memory Latency Checker", show_default=False)] = None,
    stream: Annotated[list[Path] | None, typer.Option(help="STREAM, or SuperBench's gpu-stream", show_default=False)] = None,
    nvbandwidth: Annotated[list[Path] | None, typer.Option(help="nvbandwidth, text or -j", show_default=False)] = None,
    copies: Annotated[
        list[Path] | None, typer.Option(help="bandwidthTest, rocm-bandwidth-test, gpu-copy", show_default=False)
    ] = None,
    nccl: Annotated[list[Path] | None, typer.Option(help="nccl-tests or rccl-tests, text or -J", show_default=False)] = None,
    fio: Annotated[list[Path] | None, typer.Option(help="fio --output-format=json", show_default=False)] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Combine what tools say about a machine into a topology file; each option may be given several times.

    Example: tiersim import machine --hwloc host.xml --topo topo.txt --mlc mlc.txt --nvbandwidth nvb.txt -o my-box.yaml
    """
    from sim.interchange.machines import read_figures, read_layout
    from sim.study.machine_import import document_of, machine_document, write_machine

    drawn = {"hwloc": hwloc, "numactl": numactl, "topo": topo}
    layouts = [read_layout(path, kind) for kind, paths in drawn.items() for path in paths or ()]
    measured = {"mlc": mlc, "stream": stream, "nvbandwidth": nvbandwidth, "copies": copies, "nccl": nccl, "fio": fio}
    figures = [figure for kind, paths in measured.items() for path in paths or () for figure in read_figures(path, kind)]
    draft = machine_document(layouts, figures, gpu=gpu)
    name = name or output.stem
    write_machine(draft, name, output, [path for paths in (*drawn.values(), *measured.values()) for path in paths or ()])
    if is_json:
        import json

        typer.echo(json.dumps(document_of(draft, name) | {"calibrated": draft.used, "file": str(output)}, indent=2))
        return
    typer.echo(f"devices     {', '.join(draft.devices)}")
    for line in draft.used:
        typer.echo(f"calibrated  {line}")
    for line in draft.assumptions:
        typer.echo(f"assumed     {line}")
    typer.echo(f"{output}: check it with `tiersim check {output}`; use it with `topology: {output}`")


_MODEL = typer.Option(help="built-in model or a config.json, where the file names none", show_default=False)
_TOPOLOGY = typer.Option(help="machine: a built-in topology or a file", show_default=False)
_GPUS = typer.Option(
    min=0, help="GPUs of the job, where the file does not say; default: all of the machine", show_default=False
)
_BATCH = typer.Option(min=0, help="micro-batch per GPU, for 'auto'", show_default=False)
_ACCUMULATION = typer.Option(min=0, help="gradient accumulation, for 'auto'", show_default=False)
_LENGTH = typer.Option(min=0, help="tokens per sequence", show_default=False)
_TARGET = typer.Option(
    "-o", "--output", help="scenario to write; default: NAME.scenario.yaml in this folder", show_default=False
)


@app.command()
def deepspeed(
    file: Annotated[Path, typer.Argument(help="DeepSpeed configuration (JSON)", show_default=False)],
    model: Annotated[str, _MODEL] = "",
    topology: Annotated[str, _TOPOLOGY] = "",
    gpus: Annotated[int, _GPUS] = 0,
    batch_size: Annotated[int, _BATCH] = 0,
    accumulation: Annotated[int, _ACCUMULATION] = 0,
    sequence_length: Annotated[int, _LENGTH] = 0,
    output: Annotated[Path | None, _TARGET] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Turn a DeepSpeed configuration into a scenario.

    Example: tiersim import deepspeed ds_config.json --model llama-2-13b --topology dgx-a100 -o job.yaml
    """
    from sim.study.job_import import Asked, import_deepspeed

    asked = Asked(model=model, topology=topology, gpus=gpus, batch_size=batch_size, gradient_accumulation=accumulation,
                  sequence_length=sequence_length)  # fmt: skip
    _write_job(import_deepspeed(file, asked), file, output, is_json=is_json)


@app.command()
def huggingface(
    file: Annotated[
        Path,
        typer.Argument(help="accelerate YAML, TrainingArguments as JSON or YAML, or a torchtune recipe", show_default=False),
    ],
    model: Annotated[str, _MODEL] = "",
    topology: Annotated[str, _TOPOLOGY] = "",
    gpus: Annotated[int, _GPUS] = 0,
    batch_size: Annotated[int, _BATCH] = 0,
    accumulation: Annotated[int, _ACCUMULATION] = 0,
    sequence_length: Annotated[int, _LENGTH] = 0,
    output: Annotated[Path | None, _TARGET] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Turn an accelerate configuration or Trainer arguments into a scenario.

    Example: tiersim import huggingface default_config.yaml --model llama-3-8b --topology dgx-h100 -o job.yaml
    """
    from sim.study.job_import import Asked, import_huggingface

    asked = Asked(model=model, topology=topology, gpus=gpus, batch_size=batch_size, gradient_accumulation=accumulation,
                  sequence_length=sequence_length)  # fmt: skip
    _write_job(import_huggingface(file, asked), file, output, is_json=is_json)


@app.command()
def megatron(
    file: Annotated[Path, typer.Argument(help="launch script, command line, or printed arguments", show_default=False)],
    model: Annotated[
        str, typer.Option(help="built-in model or a config.json instead of the dimensions of the script", show_default=False)
    ] = "",
    topology: Annotated[str, _TOPOLOGY] = "",
    gpus: Annotated[int, _GPUS] = 0,
    sequence_length: Annotated[int, _LENGTH] = 0,
    define: Annotated[
        list[str] | None,
        typer.Option(help="value of a variable that the script takes from outside: MODEL_SIZE=7B", show_default=False),
    ] = None,
    output: Annotated[Path | None, _TARGET] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Turn a launch script of Megatron-LM or Megatron-DeepSpeed into a scenario; nothing of it is run.

    Example: tiersim import megatron pretrain_gpt.sh --topology dgx-h100 -o job.yaml
    """
    from sim.study.job_import import Asked
    from sim.study.job_megatron import defined, import_megatron

    asked = Asked(model=model, topology=topology, gpus=gpus, sequence_length=sequence_length)
    _write_job(import_megatron(file, asked, defined(define or ())), file, output, is_json=is_json)


def _write_job(job: ImportedJob, file: Path, output: Path | None, *, is_json: bool) -> None:
    from sim.study.job_import import write_job

    target = output or Path(f"{file.stem}.scenario.yaml")
    write_job(job, target)
    lines = {"resolved": job.settings.resolved, "assumed": job.assumed, "not used": job.settings.unused,
             "unknown": job.settings.unknown}  # fmt: skip
    if is_json:
        import json

        told = {kind.replace(" ", "_"): items for kind, items in lines.items()}
        typer.echo(json.dumps({"scenario": job.document, **told, "file": str(target)}, indent=2))
        return
    unused = lines.pop("not used")
    if unused:
        typer.echo(f"not used  {', '.join(text.split(' (')[0] for text in unused)}")
    for kind, items in lines.items():
        for item in items:
            typer.echo(f"{kind:<9} {item}")
    typer.echo(f"{target}: try `tiersim fit {target}`")
