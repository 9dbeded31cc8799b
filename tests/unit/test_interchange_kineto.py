"""Kineto import: dialects, links, waits as dependencies, damage; on hand-written traces of known answer."""

import json
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.interchange import kineto
from sim.interchange.rules import parse_rules
from sim.interchange.step_file import check_step
from sim.records import Kind, Step, StepOperation
from tests.kineto_sample import Sample, plain


def imported(sample: Sample, step: int | None = None, dialect: str = "relative", rules: tuple[str, ...] = ()) -> Step:
    read = kineto.step_from([kineto.read_rank(sample.to_bytes(dialect), "t.json", parse_rules(rules))], step)
    assert not check_step(read)
    return read


def of(step: Step, name: str) -> StepOperation:
    (found,) = [op for op in step.operations if op.name == name]
    return found


def named(step: Step, name: str) -> list[StepOperation]:
    return [op for op in step.operations if op.name == name]


def longest_path_s(step: Step, copy_s: float = 0.0) -> float:
    """Makespan when transfers and collectives take `copy_s`."""
    successors: dict[str, list[str]] = defaultdict(list)
    waits: dict[str, int] = {}
    last: dict[str, str] = {}
    start: dict[str, float] = defaultdict(float)
    by_id = {op.id: op for op in step.operations}
    for op in sorted(step.operations, key=lambda op: op.sequence):
        before = [*op.after, *([last[op.stream]] if op.stream in last else [])]
        last[op.stream] = op.id
        waits[op.id] = len(before)
        for name in before:
            successors[name].append(op.id)
    ready = [name for name, count in waits.items() if not count]
    end = 0.0
    while ready:
        op = by_id[ready.pop()]
        done = start[op.id] + op.fixed_s + sum(k.recorded_s for k in op.kernels)
        done += copy_s if op.kind in (Kind.TRANSFER, Kind.COLLECTIVE) else 0.0
        end = max(end, done)
        for then in successors[op.id]:
            start[then] = max(start[then], done)
            waits[then] -= 1
            if not waits[then]:
                ready.append(then)
    return end


@pytest.mark.parametrize("dialect", ["relative", "epoch", "integer"])
def test_the_three_dialects_of_time_give_the_same_step(dialect: str) -> None:
    step = imported(plain(), dialect=dialect)
    reference = imported(plain())
    assert [(op.id, op.after, op.stream) for op in step.operations] == [(o.id, o.after, o.stream) for o in reference.operations]
    kernels = [k.recorded_s for op in step.operations for k in op.kernels]
    assert not any("tolerant" in note or "damaged" in note for note in step.notes)  # read strictly, in every dialect
    bias_s = 0.5e-6 if dialect == "integer" else 0.0  # a truncated duration misses half a microsecond on average
    assert kernels == pytest.approx([50e-6 + bias_s] * 3, abs=1e-12)
    assert step.source_step_s == pytest.approx(1e-3, rel=1e-9)


def test_epoch_microseconds_keep_their_nanoseconds() -> None:
    sample = plain()
    sample.launch(300.001, 310.003, 0.007, name="tiny")
    assert of(imported(sample, dialect="epoch"), "tiny").kernels[0].recorded_s == pytest.approx(7e-9, abs=1e-15)


def test_a_plain_step_replays_to_its_recorded_time() -> None:
    step = imported(plain())
    assert longest_path_s(step) == pytest.approx(step.source_step_s, rel=0.005)


def test_a_synchronisation_is_a_dependency_not_a_duration() -> None:
    step = imported(plain())
    before, after = sorted(named(step, "cudaStreamSynchronize"), key=lambda op: op.sequence)[-2:]
    last_kernel = named(step, "gemm")[-1]
    assert after.after == (last_kernel.id,)
    assert after.fixed_s == pytest.approx(3e-6)  # 265 - 262: what the call took once the kernel was done
    assert before.fixed_s < 10e-6
    # kernels ten times as fast: the recorded wait must vanish
    fast = tuple(
        msgspec.structs.replace(op, kernels=tuple(msgspec.structs.replace(k, recorded_s=k.recorded_s / 10) for k in op.kernels))
        for op in step.operations
    )
    saved = longest_path_s(step) - longest_path_s(msgspec.structs.replace(step, operations=fast))
    assert saved == pytest.approx(0.9 * 100e-6, rel=0.3)  # two of three kernels were behind the launches


def test_steps_are_cut_by_marks_and_the_median_one_is_chosen() -> None:
    sample = Sample()
    for number, (at, dur) in enumerate([(0, 1000), (1000, 3000), (4000, 2000)]):
        sample.step(number, at, dur)
        sample.launch(at + 100, at + 110, 50)
    assert imported(sample).source_step_s == pytest.approx(2e-3)
    assert imported(sample, step=1).source_step_s == pytest.approx(3e-3)
    with pytest.raises(InputError, match=r"no step 3; steps 0 to 2 exist"):
        imported(sample, step=3)


def test_without_marks_steps_end_with_the_optimizer_and_without_that_the_recording_is_one_step() -> None:
    sample = Sample()
    for number in range(4):
        sample.launch(number * 100 + 10, number * 100 + 20, 10)
        sample.event("cpu_op", "Optimizer.step#SGD.step", number * 100 + 60, 20)
    assert imported(sample).source_step_s == pytest.approx(100e-6)
    bare = Sample()
    bare.launch(10, 20, 50)
    step = imported(bare)
    assert any("no step marks" in note for note in step.notes)


def test_zero_length_steps_and_negative_durations_are_counted() -> None:
    sample = plain()
    sample.step(7, 990, 0)
    sample.event("kernel", "backwards", 500, -3, 7, 0, device=0, stream=7)
    notes = " ".join(imported(sample).notes)
    assert "1 steps of zero length ignored" in notes
    assert "1 events ignored: negative duration" in notes


def test_work_of_the_step_before_hides_cpu_time() -> None:
    """The GPU lags 400 us behind the CPU: a step takes what the GPU takes, not CPU plus GPU."""
    sample = Sample()
    for number in range(4):
        at = number * 1000.0
        sample.step(number, at, 1000)
        for index in range(10):
            sample.launch(at + 5 + index * 10, at + 410 + index * 100, 99)
    step = imported(sample, step=2)
    assert longest_path_s(step) == pytest.approx(1e-3, rel=0.01)
    assert step.source_step_s == pytest.approx(1e-3, rel=0.01)


def test_a_launch_held_by_a_full_queue_costs_a_usual_launch() -> None:
    sample = Sample()
    sample.step(0, 0, 20000)
    for index in range(1200):
        sample.launch(10 + index * 6, 20000 + index * 20, 20)
    sample.event("cuda_runtime", "cudaLaunchKernel", 10000, 9000, correlation=99999)
    sample.event("kernel", "late", 44100, 20, 7, 0, device=0, stream=7, correlation=99999)
    step = imported(sample)
    assert any("full launch queue" in note for note in step.notes)
    launches = [op.fixed_s for op in named(step, "cudaLaunchKernel")]
    assert max(launches) < 3e-3  # the gap before it, not the 9 ms in the queue


def test_pageable_copies_hold_the_cpu_and_pinned_ones_do_not() -> None:
    sample = plain()
    sample.copy(300, 210, 310, 200, name="HtoD (Pageable -> Device)", size=2**20)
    sample.copy(520, 5, 530, 200, name="HtoD (Pinned -> Device)", size=2**20)
    step = imported(sample)
    pageable, pinned = [op for op in step.operations if op.kind is Kind.TRANSFER]
    assert (pageable.is_pinned, pinned.is_pinned) == (False, True)
    assert (pageable.source, pageable.target, pageable.size_bytes) == ("dram", "gpu", 2**20)
    waited_for = {name for op in step.operations for name in op.after}
    assert pageable.id in waited_for
    assert pinned.id not in waited_for


def test_copies_inside_the_gpu_read_and_write_its_memory_and_sizes_may_be_rocms() -> None:
    sample = plain()
    sample.copy(300, 5, 310, 2, name="DtoD (Device -> Device)", size=1000)
    sample.event("cuda_runtime", "hipMemcpyWithStream", 400, 60, correlation=555, size="2560", kind="1")
    sample.event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 410, 20, 0, 2, device=0, stream=9, correlation=555)
    step = imported(sample)
    kernel = of(step, "Memcpy DtoD (Device -> Device)").kernels[0]
    assert (kernel.read_bytes, kernel.write_bytes) == (1000, 1000)
    copy = of(step, "Memcpy HtoD (Host -> Device)")
    assert (copy.size_bytes, copy.is_pinned) == (2560, True)
    assert any("assumed pinned" in note for note in step.notes)


@pytest.mark.parametrize("recorded", [True, False])
def test_cross_stream_waits_recorded_or_inferred(recorded: bool) -> None:
    """Compute 110-160, communication on stream 20 waits for it, compute of stream 7 waits for the communication."""
    sample = Sample()
    sample.step(0, 0, 1000)
    sample.launch(100, 110, 50)
    record = sample.call("cudaEventRecord", 106, 1)
    wait = sample.call("cudaStreamWaitEvent", 108, 1)
    sample.launch(110, 162, 100, name="ncclDevKernel_AllReduce_Sum_f32", stream=20)
    record2 = sample.call("cudaEventRecord", 120, 1)
    wait2 = sample.call("cudaStreamWaitEvent", 125, 1)
    sample.launch(130, 264, 50, name="after")
    if recorded:
        for corr, stream, on, rec in ((wait, 20, 7, record), (wait2, 7, 20, record2)):
            args = {"cuda_sync_kind": "Stream Wait Event", "stream": stream, "wait_on_stream": on, "correlation": corr}
            sample.event("cuda_sync", "Stream Wait Event", 126, 1, stream, 0, wait_on_cuda_event_record_corr_id=rec, **args)
    step = imported(sample)
    collective = next(op for op in step.operations if op.kind is Kind.COLLECTIVE)
    assert of(step, "gemm").id in collective.after
    assert collective.id in of(step, "after").after
    assert any("as recorded" if recorded else "inferred from the call order" in note for note in step.notes)


def test_a_wait_without_any_call_is_inferred_from_the_times_only_if_they_fit() -> None:
    sample = Sample()
    sample.step(0, 0, 1000)
    sample.launch(50, 60, 10, name="first")
    sample.launch(100, 110, 300, name="side", stream=20)
    sample.launch(120, 412, 50, name="waits")  # right after the end of `side`
    sample.launch(500, 506, 200, name="side2", stream=20)
    sample.launch(510, 520, 50, name="free")
    step = imported(sample)
    assert of(step, "side").id in of(step, "waits").after
    assert of(step, "side2").id not in of(step, "free").after


def test_backward_on_its_own_thread_hands_over_both_ways() -> None:
    """Thread 1 launches, thread 2 launches the backward pass, thread 1 goes on: one chain, no fixed wait."""
    sample = Sample()
    sample.step(0, 0, 1000)
    sample.launch(100, 110, 10)
    for index in range(5):
        sample.launch(300 + index * 50, 310 + index * 50, 10, tid=2)
    sample.launch(600, 610, 10, name="update")
    step = imported(sample)
    assert longest_path_s(step) == pytest.approx(1e-3, rel=1e-6)
    launches = [op for op in step.operations if op.stream == "rank0.cpu" and op.name == "cudaLaunchKernel"]
    assert launches[1].fixed_s == pytest.approx((600 - 505 + 5) * 1e-6)  # from the end of thread 2's last launch
    assert any("hand-overs between CPU threads inferred: 2" in note for note in step.notes)


def test_two_threads_at_work_at_once_do_not_wait_for_each_other() -> None:
    sample = Sample()
    sample.step(0, 0, 1000)
    sample.event("cpu_op", "aten::long", 150, 500)
    sample.launch(100, 110, 10)
    sample.launch(300, 310, 10, tid=2)
    sample.launch(600, 610, 10)  # inside aten::long, which began before thread 2's launch
    step = imported(sample)
    second = [op for op in step.operations if op.stream == "rank0.cpu" and op.name == "cudaLaunchKernel"][1]
    assert second.after == ()
    assert second.fixed_s == pytest.approx(500e-6)


def test_the_data_loader_is_told_apart() -> None:
    sample = plain()
    sample.event("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 10, 60)
    (load,) = [op for op in imported(sample).operations if op.category == "data"]
    assert load.fixed_s == pytest.approx(60e-6)


@pytest.mark.parametrize(
    ("args", "name", "size", "basis"),
    [
        ({"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 4, "dtype": "BFloat16"},
         "ncclDevKernel_AllReduce", 2000, "metadata"),
        ({"Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 40, "Group size": 4, "dtype": "Float"},
         "ncclDevKernel_AllGather", 160, "metadata"),
        ({}, "ncclKernel_AllReduce_RING_LL_Sum_float", 4000, "operator shapes"),
        ({}, "ncclKernel_AllGather_RING", 16000, "operator shapes"),
    ],
)  # fmt: skip
def test_collective_sizes_and_how_they_are_known(args: dict[str, object], name: str, size: float, basis: str) -> None:
    sample = Sample(distributedInfo={"backend": "nccl", "rank": 0, "world_size": 4})
    sample.step(0, 0, 1000)
    kind = "all_gather" if "AllGather" in name else "all_reduce"
    dims = {"Input Dims": [[10, 100]], "Input type": ["float"]} if not args else {}
    sample.event("user_annotation", f"nccl:{kind}", 95, 20, **dims)
    sample.launch(100, 110, 50, name=name, stream=20, **args)
    (found,) = [op for op in imported(sample).operations if op.kind is Kind.COLLECTIVE]
    assert (found.size_bytes, found.collective, found.group) == (size, kind, "world")
    assert f"collectives sized by {basis}: 1" in imported(sample).notes


def test_flops_come_from_the_operator_around_the_launch() -> None:
    sample = Sample()
    sample.step(0, 0, 1000)
    sample.event("cpu_op", "aten::mm", 95, 20, **{"Input Dims": [[128, 64], [64, 32]], "Input type": ["float", "float"]})
    sample.launch(100, 110, 50, name="ampere_sgemm_128x64")
    kernel = of(imported(sample), "ampere_sgemm_128x64").kernels[0]
    assert (kernel.kind, kernel.dtype, kernel.flops) == ("gemm", "fp32", 2 * 128 * 64 * 32)
    assert (kernel.read_bytes, kernel.write_bytes) == (4 * (128 * 64 + 64 * 32), 4 * 128 * 32)


def test_rules_name_the_tensors_that_copies_carry() -> None:
    sample = plain()
    sample.copy(300, 5, 310, 200, name="HtoD (Pinned -> Device)", size=2**20)
    sample.copy(600, 5, 610, 20, name="HtoD (Pinned -> Device)", size=2**10)
    step = imported(sample, rules=("h2d min=64KiB = optimizer_states",))
    large, small = [op for op in step.operations if op.kind is Kind.TRANSFER]
    assert (large.source, large.tensor_class) == ("home:optimizer_states", "optimizer_states")
    assert (small.source, small.tensor_class) == ("dram", None)


@pytest.mark.parametrize(
    ("rule", "message"),
    [("h2d = everything", "no tensor class"), ("sideways = weights", "unknown condition 'sideways'"),
     ("min=3 = weights", "missing unit"), ("name=( = weights", "regular expression")],
)  # fmt: skip
def test_wrong_rules_say_how_to_mend_them(rule: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rules([rule])


def test_ranks_of_one_job_become_classes_and_mixed_ones_are_refused() -> None:
    def rank(number: int, world: int = 2) -> kineto.Reading:
        header = {"distributedInfo": {"backend": "nccl", "rank": number, "world_size": world}}
        return kineto.read_rank(plain(**header).to_bytes(), f"rank{number}.json")

    both = kineto.step_from([rank(0), rank(1)])
    assert [(c.name, c.num_ranks, c.first_rank) for c in both.rank_classes] == [("rank0", 1, 0), ("rank1", 1, 1)]
    alone = kineto.step_from([rank(1)])
    assert [(c.name, c.num_ranks) for c in alone.rank_classes] == [("rank1", 2)]
    assert any("stands for all 2 ranks" in note for note in alone.notes)
    with pytest.raises(InputError, match="rank 1 is given 2 times"):
        kineto.step_from([rank(1), rank(1)])
    with pytest.raises(InputError, match="different jobs: world sizes 2, 4"):
        kineto.step_from([rank(0), rank(1, world=4)])


def test_recordings_without_gpu_work_say_why() -> None:
    sample = Sample()
    sample.event("cpu_op", "aten::mm", 0, 10)
    with pytest.raises(InputError, match=r"no GPU kernels or copies; record with ProfilerActivity\.CUDA"):
        kineto.read_rank(sample.to_bytes(), "t.json")
    sample.event("cuda_profiler_range", "kernel", 0, 10)
    with pytest.raises(InputError, match="1 CUPTI counter ranges instead"):
        kineto.read_rank(sample.to_bytes(), "t.json")
    for content, message in (
        (b"{}", "without 'traceEvents'"),
        (b"hello", "not JSON"),
        (b'{"traceEvents": []}', "no CPU or GPU"),
    ):
        with pytest.raises(InputError, match=message):
            kineto.read_rank(content, "t.json")


def test_tolerable_damage_is_read_and_noted() -> None:
    whole = plain().to_bytes()
    for damaged in (
        whole.replace(b'"name": "gemm"', b'"name": "ge\x01mm"', 1),
        whole.replace(b'"name": "gemm"', b'"name": "ge\xff\xfemm"', 1),
        whole.replace(b'"device": 0', b'"device": 0, "x": NaN', 1),
    ):
        step = kineto.step_from([kineto.read_rank(damaged, "t.json")])
        assert any("tolerant parser" in note for note in step.notes)
        assert longest_path_s(step) == pytest.approx(longest_path_s(imported(plain())), rel=1e-9)
    events = json.loads(whole)["traceEvents"]
    assert kineto.step_from([kineto.read_rank(json.dumps(events).encode(), "t.json")]).operations  # a bare list is fine


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0.01, 0.999))
def test_a_cut_file_gives_its_whole_events_or_is_refused(share: float) -> None:
    whole = plain(num_steps=3).to_bytes()
    cut = whole[: int(len(whole) * share)]
    try:
        reading = kineto.read_rank(cut, "t.json")
        step = kineto.step_from([reading])
    except InputError as error:
        assert "t.json" in str(error)  # noqa: PT017
    else:
        assert any("damaged file" in note and "lost" in note for note in step.notes)
        assert not check_step(step)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_noise_is_refused_never_crashes(noise: bytes) -> None:
    for content in (noise, b'{"traceEvents": [' + noise):
        with pytest.raises(InputError):
            kineto.read_rank(content, "t.json")


def test_control_characters_and_kilometre_names_are_tamed() -> None:
    sample = Sample()
    sample.step(0, 0, 1000)
    sample.launch(100, 110, 50, name="evil\x1b[31m</script>\u2028" + "x" * 5000)
    (kernel,) = [op for op in imported(sample).operations if op.kernels]
    assert len(kernel.name) <= 240
    assert kernel.name.startswith("evil [31m</script> x")


def test_on_a_faster_gpu_the_cpu_sets_the_pace() -> None:
    """The CPU needs 400 us a step and runs ahead of kernels of 1000 us: free here, the limit where kernels take 100 us."""
    sample = Sample()
    for number in range(3):
        sample.step(number, number * 400.0, 400)
        sample.launch(number * 400.0 + 100, number * 1000.0 + 110, 1000)
    step = imported(sample, step=1)
    assert step.source_step_s == pytest.approx(1000e-6, abs=2e-6)
    assert longest_path_s(step) == pytest.approx(1000e-6, abs=5e-6)
    faster = tuple(
        msgspec.structs.replace(op, kernels=tuple(msgspec.structs.replace(k, recorded_s=k.recorded_s / 10) for k in op.kernels))
        for op in step.operations
    )
    assert longest_path_s(msgspec.structs.replace(step, operations=faster)) == pytest.approx(400e-6, abs=5e-6)


@settings(deadline=None, max_examples=30)
@given(st.randoms(use_true_random=False))
def test_the_order_of_events_in_the_file_does_not_matter(random: Any) -> None:
    sample = plain(num_steps=2)
    for name in ("aten::matmul", "aten::mm"):  # of one interval: which is the inner one decides the FLOPs
        sample.event("cpu_op", name, 95, 20, 1, **{"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]})
    sample.copy(300, 10, 320, 50, name="HtoD (Pinned -> Device)", size=1 << 20, stream=20)
    before = imported(sample, step=0)
    random.shuffle(sample.events)
    assert imported(sample, step=0).operations == before.operations


@pytest.mark.parametrize(
    ("names", "ranks"), [(["trace_rank3.json", "trace_rank_1.json"], [3, 1]), (["a.json", "b.json"], [0, 1])]
)
def test_ranks_that_recordings_do_not_tell_come_from_their_names_or_their_order(names: list[str], ranks: list[int]) -> None:
    step = kineto.step_from([kineto.read_rank(plain().to_bytes(), f"/x/{name}") for name in names])
    assert [item.first_rank for item in step.rank_classes] == ranks


def test_two_recordings_of_one_name_are_one_rank_given_twice() -> None:
    with pytest.raises(InputError, match="rank 2 is given 2 times"):
        kineto.step_from([kineto.read_rank(plain().to_bytes(), f"/{folder}/rank2.json") for folder in "ab"])
