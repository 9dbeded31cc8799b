"""Data loader, delayed update, checkpoint writes and core limits: step times by hand, on both sides of each boundary."""

import dataclasses

import pytest

from sim.config import scenario_of
from sim.engine import replay
from sim.experiment import prepare, run
from sim.laws.cpu import SLICE_S, SWITCH_S, shared_work
from sim.metrics.breakdown import breakdown_s
from sim.metrics.seen import Seen
from sim.placement.capacity import capacity_plan
from sim.workload.step.loader import MESSAGE_S, SHARED_BYTES_PER_S

SAMPLES = 2 * 8 * 4  # batch, micro-batches, ranks of an A100 node that share two sockets of 64 cores


def _replayed(placement=None, ranks=4, **training):
    inputs = {
        "name": "loader",
        "topology": "dgx-a100",
        "workload": {
            "training": {
                "model": "gpt2-xl",
                "sequence_length": 1024,
                "batch_size": 2,
                "gradient_accumulation": 8,
                "framework": "pytorch",
                "parallelism": {"data": ranks},
            }
            | training
        },
    }
    if placement:
        inputs["placement"] = placement
    _, program = prepare(scenario_of(inputs, file="test").resolve())
    found = replay(program, capacity="observe")
    return found.makespan_s, breakdown_s(Seen(program, found)), program


def _data(**fields):
    return {"data": {"workers": 8, "seconds_per_sample": "1 ms", "prefetch": 2} | fields}


def test_enough_workers_hide_the_loader_and_too_few_bound_the_step():
    plain, _, _ = _replayed()
    # one rank prepares 16 samples a step with 8 workers: they are enough up to 8 plain / 16 seconds a sample
    limit = 8 * plain / 16
    hidden, parts, _ = _replayed(**_data(seconds_per_sample=f"{0.95 * limit} s"))
    assert hidden == pytest.approx(plain, rel=1e-3)
    assert parts["data"] < 0.01 * hidden
    starved, parts, _ = _replayed(**_data(seconds_per_sample=f"{2 * limit} s"))
    assert starved == pytest.approx(2 * plain, rel=1e-3)
    assert parts["data"] == pytest.approx(plain, rel=0.02)


def test_workers_beyond_the_cores_of_the_socket_do_not_help():
    # dgx-a100: two sockets of 64 cores, each with four of the eight GPUs
    enough, _, program = _replayed(ranks=8, **_data(workers=16, seconds_per_sample="2 s"))
    crowded, _, _ = _replayed(ranks=8, **_data(workers=32, seconds_per_sample="2 s"))
    assert {c.bandwidth_per_s for c in program.channels if c.name.endswith("cores")} == {64.0}
    assert enough == pytest.approx(4 * 16 * 2.0 / 64, rel=0.02)  # four ranks of a socket want all of its cores
    assert crowded == pytest.approx(enough * (1 + SWITCH_S / SLICE_S), rel=1e-3)


def test_without_workers_the_gpu_waits_for_every_batch():
    plain, _, _ = _replayed()
    serial, parts, _ = _replayed(**_data(workers=0, seconds_per_sample="10 ms"))
    assert serial == pytest.approx(plain + 16 * 0.010, rel=1e-3)
    assert parts["data"] == pytest.approx(16 * 0.010, rel=0.05)


def test_reading_samples_binds_when_storage_is_slow():
    plain, _, _ = _replayed()
    size = 40e9 * plain / SAMPLES  # 40 GB/s asked of eight drives
    slow, _, program = _replayed(**_data(bytes_per_sample=f"{2 * size} B", seconds_per_sample="0 s"))
    drive = next(c for c in program.channels if "nvme0" in c.name)
    assert slow > plain
    assert slow >= SAMPLES * 2 * size / drive.bandwidth_per_s * 0.99


def test_workers_that_do_not_survive_an_epoch_are_started_once_in_it():
    def step_s(is_persistent, epoch_steps):
        dataset = {} if epoch_steps is None else {"dataset": {"samples": SAMPLES * epoch_steps}}
        return _replayed(data=_data(persistent_workers=is_persistent)["data"], **dataset)[0]

    kept = step_s(True, 10)
    start_s = 8 * 0.03 + 2 * 1e-3  # workers in turn, then the first batch of one of them
    assert step_s(False, 10) == pytest.approx(kept + start_s / 10, rel=1e-6)
    assert step_s(False, 1) == pytest.approx(kept + start_s, rel=1e-6)
    assert step_s(False, None) == pytest.approx(kept, rel=1e-9)


def test_delayed_update_hides_the_shorter_of_update_and_passes():
    job = {"framework": "deepspeed-zero", "parallelism": {"data": 4, "zero_stage": 2}, "gradient_accumulation": 1}
    both, _, _ = _replayed({"optimizer_states": "dram", "gradients": "dram"}, **job, optimizer={"delayed_update": False})
    late, _, program = _replayed({"optimizer_states": "dram", "gradients": "dram"}, **job, optimizer={"delayed_update": True})
    updates = [op for op in program.operations if op.name == "cpu adamw"]
    assert updates
    assert all(not op.after for op in updates)
    assert 0.5 * both < late < both


def test_a_checkpoint_adds_its_share_of_the_write():
    plain, _, program = _replayed()
    saved, parts, program = _replayed(save={"every": 10})
    write = next(op for op in program.operations if op.name == "write checkpoint")
    count = 1.5577e9  # GPT-2 XL
    assert write.work == pytest.approx(count * 14 / 10 / 4, rel=0.01)
    assert parts["storage"] == pytest.approx(saved - plain, rel=0.01)
    rare, _, _ = _replayed(save={"every": 20})
    assert saved - plain == pytest.approx(2 * (rare - plain), rel=0.02)
    beside, _, _ = _replayed(save={"every": 10, "asynchronous": True})
    assert plain < beside < saved


def test_fewer_cores_slow_the_cpu_update_and_more_than_the_bus_needs_do_not_help():
    def update(cores):
        job = {"framework": "deepspeed-zero", "parallelism": {"data": 4, "zero_stage": 2}, "gradient_accumulation": 1}
        place = {"optimizer_states": "dram", "gradients": "dram"}
        _, parts, program = _replayed(place, **job, offload={"cores_per_rank": cores})
        return parts["cpu_optimizer"], next(op for op in program.operations if op.name == "cpu adamw")

    (one, slow), (two, fast), (many, _), (more, _) = (update(cores) for cores in (1, 2, 16, 15))
    assert fast.rate_cap == pytest.approx(2 * slow.rate_cap)
    assert one > slow.work / slow.rate_cap
    assert one > two >= many
    assert many == pytest.approx(more, rel=0.02)


def test_host_work_of_unbound_ranks_is_slower_and_the_scenario_overrides_the_framework():
    def amounts(framework, bound, stage=3, precision="bf16", **optimizer):
        job = {"framework": framework, "parallelism": {"data": 4, "zero_stage": stage}, "gradient_accumulation": 1}
        job |= {"optimizer": optimizer, "precision": precision}
        offload = {} if bound is None else {"cores_bound": bound}
        _, _, program = _replayed({"optimizer_states": "dram", "gradients": "dram"}, **job, offload=offload)
        updated = sum(op.work for op in program.operations if op.name == "cpu adamw")
        return updated / (1.5577e9 / 4)

    assert amounts("deepspeed-zero", True) == pytest.approx(44, rel=0.01)
    assert amounts("deepspeed-zero", False) == pytest.approx(44 / 0.61, rel=0.01)
    assert amounts("deepspeed-zero", None) == amounts("deepspeed-zero", False)
    assert amounts("deepspeed-zero", True, stage=2) == pytest.approx(38, rel=0.01)
    assert amounts("auto", None) == pytest.approx(28, rel=0.01)
    assert amounts("pytorch", None) == pytest.approx(96, rel=0.01)  # torch's optimizer: a pass per operation
    assert amounts("pytorch", None, implementation="fused") == pytest.approx(28, rel=0.01)
    assert amounts("torchtune", None, implementation="fused") == pytest.approx(14, rel=0.01)  # all in 16 bits
    assert amounts("auto", None, precision="fp16") == pytest.approx(28 + 8, rel=0.01)  # gradients are unscaled first
    assert amounts("deepspeed-zero", True, precision="fp16") == pytest.approx(44, rel=0.01)  # as always
    assert amounts("pytorch", None, implementation="fused", type="sgd") == pytest.approx(12, rel=0.01)
    assert amounts("torchao", None) == pytest.approx(14, rel=0.01)


def test_torchrun_starts_each_of_several_processes_with_one_thread():
    def caps(ranks, **offload):
        job = {"framework": "fsdp", "parallelism": {"data": ranks, "zero_stage": 3}, "gradient_accumulation": 1}
        _, _, program = _replayed({"optimizer_states": "dram", "gradients": "dram"}, **job, offload=offload)
        return next(op.rate_cap for op in program.operations if op.name == "cpu adamw")

    assert caps(4) == pytest.approx(caps(4, cores_per_rank=1))
    assert caps(4, cores_per_rank=8) > 2 * caps(4)
    assert caps(1) > 2 * caps(4)


def test_unbound_updates_use_the_memory_of_both_sockets():
    from sim.config import scenario_of
    from sim.experiment import run

    def update(bound):
        job = {"model": "gpt2-xl", "framework": "deepspeed-zero", "parallelism": {"zero_stage": 3}}
        job |= {"optimizer": {"offload": True}, "offload": {"cores_bound": bound}}
        result = run(scenario_of({"name": "t", "topology": "dgx-2", "workload": {"training": job}}).resolve())
        op = next(item for item in result.program.operations if item.name == "cpu adamw")
        return {name for name, _ in op.uses if name.endswith(".dram")}

    assert update(True) == {"cpu0.dram"}
    assert update(False) == {"cpu0.dram", "cpu1.dram"}


def test_loss_scaling_reads_and_writes_the_gradients_once_more():
    from sim.workload.shape import ModelShape
    from sim.workload.step import generate
    from sim.workload.training import Training

    shape = ModelShape(name="small", layers=2, hidden=64, heads=4, ffn=256, vocabulary=1000, mlp="gelu")
    base = Training(model=shape, sequence_length=64, precision="bf16", framework="pytorch")

    def traffic(training):
        update = [op for op in generate(training, {}).operations if op.phase == "update"]
        return sum(k.read_bytes + k.write_bytes for op in update for k in op.kernels)

    elements = traffic(base) / 30
    assert traffic(dataclasses.replace(base, precision="fp16")) == pytest.approx(34 * elements)


def test_every_framework_that_a_shipped_scenario_names_has_a_profile():
    import re
    from pathlib import Path

    from sim.workload import frameworks
    from sim.workload.frameworks import inference

    folder = Path(__file__).parents[2] / "scenarios"
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.yaml")]
    named = {name for text in texts for name in re.findall(r"framework: ([a-z0-9.-]+)", text)}
    assert len(named) > 10
    assert named <= {*frameworks.PROFILES, *inference.INFERENCE_PROFILES}


def test_weights_return_as_fp32_where_the_copy_does_not_block():
    def update(framework, overlap):
        job = {"framework": framework, "parallelism": {"data": 4, "zero_stage": 3}, "gradient_accumulation": 1}
        offload = {"cores_bound": True, "overlap_update": overlap}
        _, _, program = _replayed({"optimizer_states": "dram", "gradients": "dram"}, **job, offload=offload)
        named = {name: [op for op in program.operations if op.name == name] for name in ("cpu adamw", "return weights")}
        return tuple(sum(op.work for op in ops) / (1.5577e9 / 4) for ops in named.values())

    assert update("deepspeed-zero", False) == pytest.approx((44, 2), rel=0.01)  # cast by the host
    assert update("deepspeed-zero", True) == pytest.approx((36, 4), rel=0.01)  # cast by the GPU
    assert update("auto", True) == pytest.approx((28, 2), rel=0.01)


def test_a_worker_hands_its_batches_over_and_the_training_process_does_not():
    def core_s(**fields):
        _, _, program = _replayed(**_data(**fields))
        prepared = [op for op in program.operations if op.name == "prepare samples" and op.stream.endswith("loader")]
        return sum(op.work for op in prepared)

    own = 16 * 1e-3  # two samples in each of eight micro-batches
    assert core_s(workers=0) == pytest.approx(own)
    assert core_s() == pytest.approx(own + 8 * (MESSAGE_S + 2 * 16 * 1024 / SHARED_BYTES_PER_S))
    large = core_s(output_bytes_per_sample="1 MB")
    assert large == pytest.approx(own + 8 * (MESSAGE_S + 2e6 / SHARED_BYTES_PER_S))


@pytest.mark.parametrize(("cores", "lost"), [(8, 1.0), (7, 1.0 + SWITCH_S / SLICE_S)])
def test_more_processes_than_cores_lose_time_to_turns(cores, lost):
    assert shared_work(2.0, 8, cores) == pytest.approx(2.0 * lost)


def test_launches_want_a_core_where_workers_take_them():
    _, _, program = _replayed(**_data())
    _, _, serial = _replayed(**_data(workers=0))
    launching = [op for op in program.operations if op.name == "launch kernels"]
    assert launching
    assert all(op.work > 0 and not op.after for op in launching)
    assert not [op for op in serial.operations if op.name == "launch kernels"]


def test_megatron_copies_fp32_gradients_for_the_update_only():
    """HybridDeviceOptimizer: gradients and master weights stay on the GPU, fp32 goes to the host's copies and comes back."""

    def moved(framework):
        job = {"framework": framework, "parallelism": {"data": 4, "zero_stage": 1}, "gradient_accumulation": 2}
        _, _, program = _replayed({"optimizer_states": "dram"}, **job)
        named = {name: [op for op in program.operations if op.name == name] for name in ("store gradients", "return weights")}
        phases = {op.phase for op in named["store gradients"]}
        return phases, tuple(sum(op.work for op in ops) / (1.5577e9 / 4) for ops in named.values())

    phases, amounts = moved("megatron-core")
    assert phases == {"update"}
    assert amounts == pytest.approx((4, 4), rel=0.01)
    assert moved("deepspeed-zero")[0] == {"backward"}
    assert moved("megatron-deepspeed")[0] == {"backward"}


def test_megatron_keeps_masters_on_the_gpu_when_states_leave():
    """Qwen3 30B on 16 H100 (Megatron Bridge): 47.2, 43.4 and 35.6 GB with 0, 25 and 75 % of the optimizer on the CPU."""
    training = {
        "model": "qwen3-30b-a3b", "sequence_length": 4096, "framework": "megatron-bridge",
        "parallelism": {"data": 4, "tensor": 2, "pipeline": 2, "expert": 4, "zero_stage": 1, "sequence_parallel": True},
    }  # fmt: skip

    def peak_gb(share):
        block = {"name": "mirrored", "topology": {"base": "dgx-h100", "set": {"nodes": 2}}, "workload": {"training": training}}
        block["placement"] = {"optimizer_states": {"gpu": f"{100 - share}%", "dram": f"{share}%"} if share else "gpu"}
        scenario = scenario_of(block).resolve()
        return max(need.peak_bytes for name, need in _plan(scenario).items() if name.startswith("gpu")) / 1e9

    none, quarter, most = peak_gb(0), peak_gb(25), peak_gb(75)
    assert none - quarter == pytest.approx(47.2 - 43.4, rel=0.15)
    assert none - most == pytest.approx(47.2 - 35.6, rel=0.15)


def _plan(scenario):
    return capacity_plan(scenario.job.workload, scenario.job.placement, scenario.machine)


@pytest.mark.parametrize(("disk", "is_slower"), [("hdd-sata", True), ("nvme-pcie4-2tb", False)])
def test_a_hard_disk_waits_for_every_file_and_not_for_packed_samples(disk, is_slower):
    """170 reads/s of a 7,200 rpm disk, two per file, whatever reads: 110 KB files come at some 8 MB/s, shards at its 249."""

    def step_s(**data):
        fields = {"workers": 8, "bytes_per_sample": "110 KB", "storage": "disk0"} | data
        training = {"model": "vit-b-16", "framework": "pytorch", "batch_size": 256, "sequence_length": 197, "data": fields}
        block = {
            "name": "files",
            "topology": {"base": "a100-80gb-1x", "add": {"disk0": {"part": disk, "to": "cpu0"}}},
            "workload": {"training": training},
        }
        return run(scenario_of(block).resolve(), with_penalty=False).summary.step_time_s

    files, packed = step_s(), step_s(bytes_per_file="1 GB")
    if is_slower:
        assert 256 * 2 / 170 < files < 256 * 2 * 0.012
        assert files > 10 * packed
    else:
        assert files == pytest.approx(packed, rel=1e-3)
