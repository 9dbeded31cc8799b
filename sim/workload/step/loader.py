"""The data loader: samples read from storage, prepared by CPU workers, copied to the GPU.

One step is replayed, and in the steady state each step prepares as many batches as it uses. Workers keep at most
`workers x prefetch` batches ready, so the batches beyond those must be prepared while the step runs, before their
micro-batch; the rest (for the next step) before the step ends. What the GPU waits for either is exposed data time.
"""

from __future__ import annotations

from sim.records import Kind
from sim.workload.step.builder import StepBuilder
from sim.workload.step.lane import Lane
from sim.workload.training import TOKEN_BYTES, DataPipeline

#: seconds to start one worker process (fork on Linux of a process that has imported PyTorch); assumed, 10 to 100 ms
WORKER_START_S = 0.03
#: core-seconds of a worker to hand a batch over: pickle, a pipe, a file descriptor, two wake-ups; assumed, 0.1 to 1 ms
MESSAGE_S = 0.3e-3
#: bytes/s at which a worker writes a batch into shared memory that is mapped anew each time: a core's copy of 9 GB/s and
#: half a microsecond per page of 4 KB; assumed, 3 to 6 GB/s
SHARED_BYTES_PER_S = 4e9


class Loader:
    """Emits the loader of every rank that reads samples (those of the first pipeline stage)."""

    def __init__(self, builder: StepBuilder) -> None:
        self.builder, self.plan = builder, builder.plan
        self.data: DataPipeline | None = self.plan.training.data
        #: ranks that share one sample split its preparation: tensor and context ranks are fed by one loader
        self.readers = self.plan.tensor * self.plan.training.parallelism.context

    @property
    def _num_ready(self) -> int:
        return self.data.workers * self.data.prefetch if self.data else 0

    @property
    def _batch_bytes(self) -> float:
        """Bytes of one micro-batch as it goes to the GPU."""
        training = self.plan.training
        each = self.data.output_bytes_per_sample if self.data else 0.0
        return training.batch_size * (each or TOKEN_BYTES * training.sequence_length)

    def batch(self, lane: Lane, micro_batch: int) -> str | None:
        """What the forward pass of a micro-batch waits for: its samples on the GPU. None without a pipeline."""
        data, training = self.data, self.plan.training
        if data is None:
            return None
        late = micro_batch - self._num_ready
        after = self._prepare(lane, late, 1) if late >= 0 else []
        if micro_batch == 0 and (start_s := self._start_share_s()):
            started = self.builder.add(
                lane.name, "loader", Kind.MARKER, "start workers", fixed_s=start_s, phase="data", micro_batch=0
            )
            after = [*after, started]
        return self.builder.add(
            lane.name,
            "input",
            Kind.TRANSFER,
            "copy batch",
            after=after,
            source="dram",
            target="gpu",
            size_bytes=self._batch_bytes / self.readers,
            is_pinned=training.offload.pin_memory is not False,
            phase="data",
            micro_batch=micro_batch,
        )

    def _start_share_s(self) -> float:
        """A step's share of what each epoch's start costs when workers do not survive the one before: every worker is
        started in turn, then one of them prepares the first batch while the GPU waits. 0 where epochs are not declared."""
        data, training = self.data, self.plan.training
        if data is None or data.persistent_workers or not data.workers or training.dataset is None:
            return 0.0
        first_s = training.batch_size * data.seconds_per_sample
        used = training.batch_size * training.gradient_accumulation * training.parallelism.data
        return (data.workers * WORKER_START_S + first_s) / max(1.0, training.dataset.samples / used)

    def refill(self, lane: Lane) -> None:
        """Batches for the next step that the buffers hold; the step is not over before they are ready."""
        num = min(self._num_ready, self.plan.training.gradient_accumulation)
        if num:
            self._prepare(lane, self.plan.training.gradient_accumulation - num, num)
            self._launch(lane)

    def _launch(self, lane: Lane) -> None:
        """The training process wants a core too, for as long as it launches kernels: with workers on all of them it waits."""
        stream = f"{lane.name}.compute"
        launching_s = sum(op.dispatch_s for op in self.builder.operations if op.stream == stream)
        if launching_s:
            self.builder.add(
                lane.name, "launcher", Kind.HOST_WORK, "launch kernels", core_s=launching_s, num_cores=1.0, phase="data",
                micro_batch=0,
            )  # fmt: skip

    def _prepare(self, lane: Lane, first: int, num: int) -> list[str]:
        """Read and prepare batches; without workers in the training process, while the GPU waits."""
        data, training = self.data, self.plan.training
        assert data is not None
        samples = num * training.batch_size / self.readers
        after = [] if data.workers else [lane.last]
        mark = {"phase": "data", "micro_batch": first}
        done = []
        if data.bytes_per_sample:
            size = samples * data.bytes_per_sample
            done.append(
                self.builder.add(
                    lane.name, "reader", Kind.IO, "read samples", after=after, source=data.storage, target="dram",
                    size_bytes=size, file_bytes=data.bytes_per_file or data.bytes_per_sample,
                    num_in_flight=max(1, data.workers), **mark,
                )
            )  # fmt: skip
        core_s = samples * data.seconds_per_sample
        if data.workers and core_s:  # handed over from process to process
            core_s += num * (MESSAGE_S + self._batch_bytes / SHARED_BYTES_PER_S) / self.readers
        if core_s:
            work = {"core_s": core_s, "num_cores": max(1, data.workers) / self.readers}
            waits = after if data.workers else [*after, *done]
            done.append(self.builder.add(lane.name, "loader", Kind.HOST_WORK, "prepare samples", after=waits, **work, **mark))
        return done
