"""A small PyTorch profiler trace written by hand: times in microseconds from the start of the step."""

from __future__ import annotations

import json
from typing import Any

CPU, GPU = 100, 0


class Sample:
    """Collects events; `to_bytes` writes them in one of the three dialects of time."""

    def __init__(self, **header: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.header = header
        self.correlation = 0

    def event(self, cat: str, name: str, ts: float, dur: float, tid: Any = 1, pid: Any = CPU, **args: Any) -> None:
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})

    def launch(
        self, at: float, start: float, dur: float, *, name: str = "gemm", tid: Any = 1, stream: int = 7, **args: Any
    ) -> int:
        """A launch of 5 us at `at` and its kernel."""
        self.correlation += 1
        self.event("cuda_runtime", "cudaLaunchKernel", at, 5, tid, correlation=self.correlation)
        more = {"device": GPU, "stream": stream, "correlation": self.correlation} | args
        self.event("kernel", name, start, dur, stream, GPU, **more)
        return self.correlation

    def copy(
        self, at: float, call: float, start: float, dur: float, *, name: str, size: int, stream: int = 7, tid: Any = 1
    ) -> None:
        self.correlation += 1
        self.event("cuda_runtime", "cudaMemcpyAsync", at, call, tid, correlation=self.correlation)
        more = {"device": GPU, "stream": stream, "correlation": self.correlation, "bytes": size}
        self.event("gpu_memcpy", f"Memcpy {name}", start, dur, stream, GPU, **more)

    def call(self, name: str, at: float, dur: float, tid: Any = 1, correlation: int | None = None) -> int:
        self.correlation += 1
        self.event("cuda_runtime", name, at, dur, tid, correlation=correlation or self.correlation)
        return self.correlation

    def step(self, number: int, at: float, dur: float) -> None:
        self.event("user_annotation", f"ProfilerStep#{number}", at, dur)

    def to_bytes(self, dialect: str = "relative") -> bytes:
        """`relative`: us with fraction after baseTimeNanoseconds; `epoch`: us since 1970 with fraction; `integer`: whole us."""
        lines = []
        for event in self.events:
            if dialect == "relative":
                ts, dur = f"{4000.5 + event['ts']:.3f}", f"{event['dur']:.3f}"
            elif dialect == "epoch":
                ts, dur = f"{1712195495502094 + int(event['ts'])}.{round(event['ts'] % 1 * 1000):03d}", f"{event['dur']:.3f}"
            else:
                ts, dur = str(1683564901548726 + int(event["ts"])), str(int(event["dur"]))
            body = json.dumps({key: value for key, value in event.items() if key not in ("ts", "dur")})
            lines.append(f'{body[:-1]}, "ts": {ts}, "dur": {dur}}}')
        head = json.dumps({"schemaVersion": 1} | self.header)
        return f'{head[:-1]}, "traceEvents": [{", ".join(lines)}]}}'.encode()


def plain(num_steps: int = 1, **header: Any) -> Sample:
    """Per step of 1000 us: three launches, kernels of 50 us, then the CPU waits for the stream and works on for 100 us."""
    sample = Sample(**header)
    for number in range(num_steps):
        at = number * 1000.0
        sample.step(number, at, 1000)
        sample.launch(at + 100, at + 110, 50)
        sample.launch(at + 120, at + 161, 50)
        sample.launch(at + 140, at + 212, 50)
        sample.call("cudaStreamSynchronize", at + 150, 115)  # until 265, 3 us after the last kernel
    return sample
