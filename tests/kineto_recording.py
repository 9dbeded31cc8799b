"""A simulated step as the PyTorch profiler would have recorded it on that machine, for one rank: what a replay elsewhere is
checked with, for no recording of one program on two machines is at hand."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Any

from sim.experiment import Result
from sim.interchange.one_rank import OneRank, is_workless
from sim.laws.decode import decode_class
from sim.laws.kernels import solo_time
from sim.records import Dtype, Kernel, Kind, StepOperation

_US = 1e6
#: a start later than everything explains by more than this was a late launch
_LATE_S = 3e-6
_LAUNCH_US = 1.0
_SHORT_KERNELS, _SHORT_S = 20, 2e-6
_HEAD = 128
_TYPES: dict[Dtype, tuple[str, str, int]] = {
    "fp32": ("float", "f32", 4), "tf32": ("float", "s1688gemm", 4), "fp16": ("c10::Half", "f16", 2),
    "bf16": ("c10::BFloat16", "bf16", 2), "fp8": ("c10::Float8_e4m3fn", "e4m3", 1), "int8": ("signed char", "int8", 1),
}  # fmt: skip
_NAMES = {"attention": "flash_fwd_kernel", "optimizer": "multi_tensor_apply_kernel", "embedding": "indexing_backward_kernel"}
_NCCL = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast",
    "all_to_all": "SendRecv", "point_to_point": "SendRecv",
}  # fmt: skip


def recording_of(result: Result, gpu_name: str, *, has_shapes: bool = True, phase: str = "") -> bytes:
    """JSON of rank 0 (of one phase); with `has_shapes` as `record_shapes=True` writes it, else kernels have names and times."""
    return _Recorder(result, has_shapes, phase).document(gpu_name)


class _Recorder:
    def __init__(self, result: Result, has_shapes: bool, phase: str) -> None:
        self.has_shapes, self.phase = has_shapes, phase
        own = result.step.rank_classes[0]
        self.world = sum(item.num_ranks for item in result.step.rank_classes)
        self.one = OneRank(result.step, result.scenario.job.placement, {}, own, own.first_rank)
        machine = result.scenario.machine
        self.part = machine.part(machine.gpus()[0])
        latency_s = {operation.id: operation.latency_s for operation in result.program.operations}
        # an operation's own latency comes before the start of its work: it is part of both
        self.times_s = {r.id: (r.start_s - latency_s[r.id], r.end_s) for r in result.replay.operations}
        self.events: list[dict[str, Any]] = []
        self.correlation = 0
        self.cpu_us = 1.0  # the launching thread is free from here on
        self.ends_s: dict[str, float] = {}  # stream -> end of its latest work
        self.recorded: dict[str, tuple[str, int]] = {}  # operation -> (stream, event recorded after it)
        self.streams: dict[str, int] = {}

    def document(self, gpu_name: str) -> bytes:
        told = {op.id for op in self.one.operations if self.phase in ("", op.phase)}
        self.times_s = {name: times for name, times in self.times_s.items() if name in told}
        first_s = min(start for start, _ in self.times_s.values())
        passed: dict[str, list[str]] = defaultdict(list)
        latest: dict[str, str] = {}
        works = []
        for op in self.one.in_order():
            after = [latest[op.stream]] if op.stream in latest else []
            latest[op.stream] = op.id
            waits = [end for name in (*op.after, *after) for end in passed.get(name, [name])]
            if is_workless(op) or op.id not in self.times_s:
                passed[op.id] = waits
            else:
                works.append((self.times_s[op.id][0] - first_s, op, waits))
        streams = {op.id: op.stream for _, op, _ in works}
        awaited = {name for _, op, waits in works for name in waits if streams.get(name, op.stream) != op.stream}
        for start_s, op, waits in sorted(works, key=lambda item: item[0]):
            self._work(op, start_s, waits)
            if op.id in awaited:
                self.recorded[op.id] = op.stream, self._next()
                self._event("cuda_runtime", "cudaEventRecord", self.cpu_us, 0.3, correlation=self.correlation)
                self.cpu_us += 0.4
        end_us = max(1.0 + (max(end for _, end in self.times_s.values()) - first_s) * _US, self.cpu_us)
        self._event("cuda_runtime", "cudaDeviceSynchronize", self.cpu_us, end_us - self.cpu_us, correlation=self._next())
        self._event("user_annotation", "ProfilerStep#1", 0.0, end_us)
        head = {
            "schemaVersion": 1, "baseTimeNanoseconds": 0, "deviceProperties": [{"name": gpu_name}],
            "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": self.world},
        }  # fmt: skip
        return json.dumps(head | {"traceEvents": self.events}).encode()

    def _next(self) -> int:
        self.correlation += 1
        return self.correlation

    def _event(self, cat: str, name: str, ts: float, dur: float, pid: Any = 1, tid: Any = 1, **args: Any) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": round(ts, 3),
                "dur": round(dur, 3),
                "args": args,
            }
        )

    def _work(self, op: StepOperation, start_s: float, waits: list[str]) -> None:
        duration_s = self.times_s[op.id][1] - self.times_s[op.id][0]
        stream = self.streams.setdefault(op.stream, 7 + len(self.streams))
        known = [end for name in waits if (end := self.ends_s.get(name)) is not None]
        if start_s > max([*known, self.ends_s.get(op.stream, 0.0)]) + _LATE_S:
            self.cpu_us = max(self.cpu_us, 1.0 + start_s * _US - 5.0)  # launched late
        for name in waits:
            if name in self.recorded and self.recorded[name][0] != op.stream:
                self._wait(stream, *self.recorded[name])
        self._gpu(op, stream, start_s, duration_s)
        self.ends_s[op.id] = self.ends_s[op.stream] = start_s + duration_s

    def _wait(self, stream: int, other: str, record: int) -> None:
        call = {"correlation": self._next()}
        self._event("cuda_runtime", "cudaStreamWaitEvent", self.cpu_us, 0.3, **call)
        told = {"stream": stream, "wait_on_stream": self.streams[other], "wait_on_cuda_event_record_corr_id": record}
        self._event("cuda_sync", "Stream Wait Event", self.cpu_us, 0.3, 0, -1, **call, **told)
        self.cpu_us += 0.4

    def _gpu(self, op: StepOperation, stream: int, start_s: float, duration_s: float) -> None:
        """The kernels, the collective or the copies of one operation, one after the other in its time."""
        if op.kernels:
            alone = [kernel.count * solo_time(kernel, self.part) for kernel in op.kernels]
            pieces = [
                (kernel, duration_s * share / sum(alone) / self._times(kernel))
                for kernel, share in zip(op.kernels, alone, strict=True)
                for _ in range(self._times(kernel))
            ]
            for kernel, seconds in pieces:
                if kernel.kind == "gemv":
                    self._layer(kernel, stream, start_s, seconds)
                else:
                    self._kernel(kernel, stream, start_s, seconds)
                start_s += seconds
        elif op.kind is Kind.COLLECTIVE:
            self._collective(op, stream, start_s, duration_s)
        elif op.kind is Kind.TRANSFER:
            way = "HtoD (Pinned -> Device)" if op.target == "gpu" else "DtoH (Device -> Pinned)"
            self._launch("cudaMemcpyAsync")
            more = {"bytes": round(op.size_bytes), "correlation": self.correlation, "device": 0, "stream": stream}
            self._event("gpu_memcpy", f"Memcpy {way}", 1.0 + start_s * _US, duration_s * _US, 0, stream, **more)

    @staticmethod
    def _times(kernel: Kernel) -> int:
        """Repetitions written one by one; of many, some stand for all."""
        return max(1, min(40, round(kernel.count)))

    def _launch(self, call: str, operator: str = "", **shapes: Any) -> None:
        if operator:
            self._event("cpu_op", operator, self.cpu_us, _LAUNCH_US, **shapes)
        self._event("cuda_runtime", call, self.cpu_us + 0.1, _LAUNCH_US - 0.2, correlation=self._next())
        self.cpu_us += _LAUNCH_US + 0.2

    def _kernel(self, kernel: Kernel, stream: int, start_s: float, seconds: float) -> None:
        operator, shapes = self._operator(kernel) if self.has_shapes else ("aten::op", {})
        self._launch("cudaLaunchKernel", operator, **shapes)
        dtype = _TYPES[kernel.dtype][1]
        name = _NAMES.get(kernel.kind, "vectorized_elementwise_kernel")
        if kernel.kind in ("gemm", "logits"):
            name = f"xmma_gemm_{dtype}_128x128"
        elif kernel.kind == "attention":
            name = f"{name}_{dtype}"
        elif kernel.kind == "gemv":
            name = "mul_mat_vec_q" if kernel.variant.startswith("ggml") else "gemv2T_kernel_val"
        told = {"correlation": self.correlation, "device": 0, "stream": stream}
        self._event("kernel", name, 1.0 + start_s * _US, seconds * _US, 0, stream, **told)

    def _layer(self, kernel: Kernel, stream: int, start_s: float, seconds: float) -> None:
        """A layer of a decode: its products, then some twenty short kernels with gaps between them (sim.laws.decode)."""
        memory = self.part["memory"]
        rest_s = min(seconds / 2.0, decode_class(kernel.variant, str(memory.get("part", "")), 0.9).layer_s)
        self._kernel(kernel, stream, start_s, seconds - rest_s)
        small = Kernel(kind="elementwise", read_bytes=8192.0, write_bytes=8192.0)
        for number in range(_SHORT_KERNELS):
            at_s = start_s + seconds - rest_s * (1.0 - (number + 0.5) / _SHORT_KERNELS)
            self._kernel(small, stream, at_s, min(_SHORT_S, rest_s / 2.0 / _SHORT_KERNELS))

    def _operator(self, kernel: Kernel) -> tuple[str, dict[str, Any]]:
        """An operator whose inputs have the kernel's work: by its shape, else one of the same FLOPs and bytes."""
        torch, _, width = _TYPES[kernel.dtype]
        scale = kernel.count / self._times(kernel)
        if kernel.kind == "attention" and kernel.flops:
            length = kernel.sequence_length or 1
            heads = max(1, round(kernel.flops * scale / (2.0 * length * length * _HEAD)))
            dims = [[1, heads, length, _HEAD]] * 3
            scalars = ["", "", "", "0.", "True"]
            return "aten::_scaled_dot_product_flash_attention", {
                "Input Dims": [*dims, [], []], "Input type": [torch] * 3 + ["Scalar"] * 2, "Concrete Inputs": scalars,
            }  # fmt: skip
        if kernel.flops and kernel.kind in ("gemm", "logits"):
            m, n, k = kernel.m, kernel.n, kernel.k
            if not m or scale > 1:
                m = n = k = max(1, round((kernel.flops * scale / 2.0) ** (1 / 3)))
            return "aten::mm", {"Input Dims": [[m, k], [k, n]], "Input type": [torch, torch]}
        written = max(1, math.ceil(kernel.write_bytes * scale / width))
        more = max(0, round(kernel.read_bytes * scale / width) - written)
        return "aten::add_", {"Input Dims": [[written], [more]], "Input type": [torch, torch]}

    def _collective(self, op: StepOperation, stream: int, start_s: float, duration_s: float) -> None:
        torch = "BFloat16" if op.dtype == "bf16" else "Float"
        width = 2 if torch == "BFloat16" else 4
        group, members = self.one.members(op)
        whole = op.size_bytes * op.num_calls / width
        brought, result = (
            whole / len(members) if op.collective == kind else whole for kind in ("all_gather", "reduce_scatter")
        )
        self._launch("cudaLaunchKernelExC")
        told = {
            "Collective name": str(op.collective), "In msg nelems": round(brought), "Out msg nelems": round(result),
            "Group size": len(members), "dtype": torch, "Process Group Name": group, "Process Group Ranks": str(members),
            "correlation": self.correlation, "device": 0, "stream": stream,
        }  # fmt: skip
        name = f"ncclDevKernel_{_NCCL[op.collective or 'all_reduce']}_Sum_{'bf16' if width == 2 else 'f32'}_RING_LL"
        self._event("kernel", name, 1.0 + start_s * _US, duration_s * _US, 0, stream, **told)
