"""A recording of a real run laid over the prediction: the quantities that both know, side by side."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sim.experiment import Result, run
from sim.metrics.monitor import MonitorSample, monitor
from sim.probe.record import HostSample, Recording
from sim.scenario import Scenario
from sim.units import format_bytes

_MAX_INTERVALS = 400
Unit = Literal["share", "bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity: a mean share or a largest number of bytes; its series over time (s, value)."""

    name: str
    unit: Unit
    predicted: float
    recorded: float
    samples: tuple[tuple[float, float], ...]
    steps: tuple[tuple[float, float], ...]

    def cells(self) -> tuple[str, str, str]:
        """Predicted, recorded and their ratio, for a table."""
        ratio = f"{self.predicted / self.recorded:.3g}" if self.recorded else ""
        return _shown(self.predicted, self.unit), _shown(self.recorded, self.unit), ratio

    def to_json(self) -> dict[str, Any]:
        """Numbers only; the series are in the recording."""
        return {"name": self.name, "unit": self.unit, "predicted": self.predicted, "recorded": self.recorded}


def _shown(value: float, unit: Unit) -> str:
    return f"{100 * value:.1f} %" if unit == "share" else format_bytes(value)


def lay_over(scenario: Scenario, recording: Recording) -> tuple[Row, ...]:
    """Rows for every GPU pair, the host's memory and its CPUs.

    A recording holds start-up and evaluation too, so shares are means over its busy part: from the first to the last
    sample in which any GPU (without GPUs: the CPUs) is busier than a tenth of its largest. Host memory is what the run
    added: the machine's use before it started is taken off.
    """
    result = run(dataclasses.replace(scenario, options=dataclasses.replace(scenario.options, level="full")), with_penalty=False)
    samples = _busy_part(recording.samples)
    step_s = result.summary.step_time_s
    interval_s = max(step_s / _MAX_INTERVALS, min(recording.header.interval_s, step_s / 10))
    steps = monitor(result.program, result.replay, interval_s, result.summary.tiers)
    rows = [*_gpu_rows(result, steps, samples), *_host_rows(result, steps, samples, recording)]
    return tuple(row for row in rows if row.samples)


def _busy_part(samples: Sequence[HostSample]) -> Sequence[HostSample]:
    def load(sample: HostSample) -> float:
        return max((gpu.busy for gpu in sample.gpus), default=sample.cpu_busy)

    largest = max((load(sample) for sample in samples), default=0.0)
    busy = [index for index, sample in enumerate(samples) if load(sample) > 0.1 * largest]
    return samples[busy[0] : busy[-1] + 1] if busy else samples


def _row(
    name: str,
    unit: Unit,
    steps: Sequence[MonitorSample],
    predicted: Callable[[MonitorSample], float],
    samples: Sequence[HostSample],
    recorded: Callable[[HostSample], float],
) -> Row:
    mine = tuple((step.time_s, predicted(step)) for step in steps)
    theirs = tuple((sample.time_s, recorded(sample)) for sample in samples)
    join = statistics.fmean if unit == "share" else max
    return Row(
        name=name,
        unit=unit,
        predicted=join(value for _time, value in mine) if mine else 0.0,
        recorded=join(value for _time, value in theirs) if theirs else 0.0,
        samples=theirs,
        steps=mine,
    )


def _gpu_rows(result: Result, steps: Sequence[MonitorSample], samples: Sequence[HostSample]) -> list[Row]:
    gpus = [name for name in result.scenario.machine.gpus() if name in steps[0].devices]
    num_recorded = min((len(sample.gpus) for sample in samples), default=0)
    rows = []
    for index in range(num_recorded):
        device = gpus[min(index, len(gpus) - 1)] if gpus else ""
        if not device:
            continue
        rows.append(
            _row(
                f"GPU {index} busy",
                "share",
                steps,
                lambda step, device=device: step.devices[device].busy,  # type: ignore[misc]
                samples,
                lambda sample, index=index: sample.gpus[index].busy,  # type: ignore[misc]
            )
        )
        rows.append(
            _row(
                f"GPU {index} memory, largest",
                "bytes",
                steps,
                lambda step, device=device: step.devices[device].memory_bytes,  # type: ignore[misc]
                samples,
                lambda sample, index=index: sample.gpus[index].memory_used_bytes,  # type: ignore[misc]
            )
        )
    return rows


def _host_rows(
    result: Result, steps: Sequence[MonitorSample], samples: Sequence[HostSample], recording: Recording
) -> list[Row]:
    hosts = [
        name for name, device in result.scenario.machine.devices.items() if device.kind == "cpu" and name in steps[0].devices
    ]
    before = recording.samples[0].memory_used_bytes - recording.samples[0].process_bytes if recording.samples else 0.0
    memory = _row(
        "host memory added, largest",
        "bytes",
        steps,
        lambda step: sum(step.devices[host].memory_bytes for host in hosts),
        samples,
        lambda sample: max(0.0, sample.memory_used_bytes - before),
    )
    busy = _row(
        "CPU busy",
        "share",
        steps,
        lambda step: statistics.fmean(step.devices[host].busy for host in hosts) if hosts else 0.0,
        samples,
        lambda sample: sample.process_cores / recording.header.num_cpus,
    )
    return [memory, busy]
