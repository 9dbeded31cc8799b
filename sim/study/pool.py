"""Running many points on the processes of this machine: bounded in memory, safe against dying workers.

`Processes` and `Serial` share one shape (:class:`Backend`); `cluster.Dask` is the third. A backend gets chunks of
points lazily, keeps a few in flight, and yields the outcomes of each chunk as it ends, in no particular order.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Protocol

from sim.config.sweep import Assignment
from sim.errors import Fault, InputError
from sim.study.store import Outcome

Point = tuple[int, Assignment]
Chunk = Sequence[Point]
#: runs the points of one chunk; must be picklable, and the same function of its inputs in every process
Work = Callable[[Chunk], list[Outcome]]
#: makes the outcome of a point whose worker died
Lost = Callable[[Point, str], Outcome]

_MAX_DEATHS_WITHOUT_RESULT = 3


class Backend(Protocol):
    """Where chunks run."""

    num_workers: int

    def run(self, work: Work, chunks: Iterable[Chunk], lost: Lost) -> Iterator[list[Outcome]]:
        """Yield the outcomes of every chunk, each as it ends."""


class Serial:
    """Runs chunks in this process, one after the other."""

    num_workers = 1

    def run(self, work: Work, chunks: Iterable[Chunk], lost: Lost) -> Iterator[list[Outcome]]:  # noqa: ARG002 - nothing can die
        """See :class:`Backend`."""
        for chunk in chunks:
            yield work(chunk)


class Processes:
    """Runs chunks on `num_workers` spawned processes (default: one per usable CPU).

    A worker that dies (killed, out of memory) takes its pool with it: the pool is started again and the chunks that
    were in flight run once more, one point at a time and alone, so that the point at fault is known; it becomes a
    `lost` outcome, and the next run tries it again.
    """

    def __init__(self, num_workers: int = 0) -> None:
        self.num_workers = num_workers or usable_cpus()

    def run(self, work: Work, chunks: Iterable[Chunk], lost: Lost) -> Iterator[list[Outcome]]:
        """See :class:`Backend`."""
        source = iter(chunks)
        has_result = False
        num_deaths = 0
        while True:
            in_flight: dict[Future[list[Outcome]], Chunk] = {}
            executor = self._executor(self.num_workers)
            try:
                for outcomes in self._drain(executor, work, source, in_flight):
                    has_result = True
                    yield outcomes
                return
            except BrokenProcessPool:
                num_deaths += 1
                if not has_result and num_deaths > _MAX_DEATHS_WITHOUT_RESULT:
                    raise _unstartable() from None
            finally:
                executor.shutdown(wait=True, cancel_futures=True)
            for outcomes in self._recovered(work, in_flight, lost):
                has_result = has_result or outcomes[0].status != "lost"
                yield outcomes

    def _drain(
        self, executor: ProcessPoolExecutor, work: Work, source: Iterator[Chunk], in_flight: dict[Future[list[Outcome]], Chunk]
    ) -> Iterator[list[Outcome]]:
        """Keep two chunks per worker in flight until the source is dry; `in_flight` always holds what is not yet yielded."""
        is_dry = False
        while True:
            while not is_dry and len(in_flight) < 2 * self.num_workers:
                chunk = next(source, None)
                if chunk is None:
                    is_dry = True
                else:
                    in_flight[_submitted(executor, work, chunk, in_flight)] = chunk
            if not in_flight:
                return
            done, _ = wait(in_flight, return_when=FIRST_COMPLETED)
            for future in done:
                outcomes = future.result()
                del in_flight[future]
                yield outcomes

    def _recovered(self, work: Work, in_flight: Mapping[Future[list[Outcome]], Chunk], lost: Lost) -> Iterator[list[Outcome]]:
        """What was in flight when the pool broke: finished chunks as they are, the others point by point in one worker."""
        pending = [chunk for future, chunk in in_flight.items() if not _is_finished(future)]
        for future in in_flight:
            if _is_finished(future):
                yield future.result()
        executor = self._executor(1)
        try:
            for point in (point for chunk in pending for point in chunk):
                try:
                    with without_interrupts():
                        future = executor.submit(work, [point])
                    yield future.result()
                except BrokenProcessPool:
                    executor.shutdown(wait=True)
                    executor = self._executor(1)
                    yield [lost(point, "the worker process died: killed, or out of memory")]
        finally:
            executor.shutdown(wait=True, cancel_futures=True)

    def _executor(self, num_workers: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(num_workers, mp_context=get_context("spawn"), initializer=_start_worker)


def _is_finished(future: Future[list[Outcome]]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _submitted(
    executor: ProcessPoolExecutor, work: Work, chunk: Chunk, in_flight: dict[Future[list[Outcome]], Chunk]
) -> Future[list[Outcome]]:
    try:
        with without_interrupts():
            return executor.submit(work, chunk)
    except BrokenProcessPool:
        in_flight[Future()] = chunk  # not accepted any more: run it with the rest after the restart
        raise


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Processes started inside never hear Ctrl-C, not even while they import; this one hears it right after."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    """Ctrl-C is the coordinator's to handle; a worker whose coordinator is gone must go too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_rarely()
    parent = parent_process()
    if parent is not None:

        def leave() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=leave, daemon=True, name="coordinator-watch").start()


def collect_rarely() -> None:
    """Points leave few cycles: look for them rarely, and never in what was imported. For processes that only run points."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _unstartable() -> InputError:
    return InputError(
        Fault(
            what="worker processes die before they return anything",
            remedy="in a script, call the study under `if __name__ == '__main__':`; or use one process (workers=1)",
        )
    )
