"""Running points on a Dask cluster: an address, or local workers. The same outcomes as on processes, bit for bit."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sim.errors import Fault, InputError
from sim.study.pool import Chunk, Lost, Work, collect_rarely
from sim.study.store import Outcome

_LOCAL = re.compile(r"local:(?P<workers>[1-9][0-9]*)")
_REMEDY = "write local:4, or the scheduler's address such as tcp://host:8786"
_CONNECT_S = 20
_CHUNKS_PER_WORKER = 3


#: workers of our own need no profile of themselves, which looks at their stack every 10 ms
_LOCAL_SETTINGS = {"distributed.worker.profile.enabled": False}


class Dask:
    """Chunks as Dask tasks. `where` is ``local:N`` or a scheduler's address.

    Workers need tiersim installed in the same version; only the coordinator touches the store. A task whose worker
    dies is run again elsewhere by the scheduler; when it has killed several workers its points become `lost`.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        match = _LOCAL.fullmatch(where)
        if match is None and "://" not in where:
            raise InputError(Fault(what=f"unknown cluster {where!r}", remedy=_REMEDY))
        self.num_workers = int(match["workers"]) if match else 0

    def run(self, work: Work, chunks: Iterable[Chunk], lost: Lost) -> Iterator[list[Outcome]]:
        """See :class:`sim.study.pool.Backend`."""
        distributed = _distributed()
        with contextlib.ExitStack() as stack:
            client = self._client(distributed, stack)
            shared = client.scatter(work, broadcast=True)
            source = iter(chunks)
            in_flight: dict[Any, Chunk] = {}
            limit = _CHUNKS_PER_WORKER * max(1, self.num_workers or len(client.scheduler_info()["workers"]))
            finished = distributed.as_completed()
            for chunk in source:
                in_flight[_submit(client, shared, chunk, finished)] = chunk
                if len(in_flight) >= limit:
                    break
            while in_flight:
                future = next(finished)
                chunk = in_flight.pop(future)
                yield _outcomes(distributed, future, chunk, lost)
                following = next(source, None)
                if following is not None:
                    in_flight[_submit(client, shared, following, finished)] = following

    def _client(self, distributed: Any, stack: contextlib.ExitStack) -> Any:
        if self.num_workers:
            stack.enter_context(_settings(_LOCAL_SETTINGS))
            cluster = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=self.num_workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
                )
            )
            client = stack.enter_context(distributed.Client(cluster))
            client.run(collect_rarely)
            return client
        try:
            return stack.enter_context(distributed.Client(self.where, timeout=_CONNECT_S))
        except (OSError, ValueError) as error:
            raise InputError(Fault(what=f"no Dask scheduler at {self.where!r}: {error}", remedy=_REMEDY)) from error


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise InputError(Fault(what="a cluster needs Dask", remedy="pip install 'tiersim[cluster]'")) from error
    return distributed


def _settings(values: Mapping[str, object]) -> Any:
    import dask

    return dask.config.set(values)


def run_chunk(work: Work, chunk: Chunk) -> list[Outcome]:
    """What a Dask worker runs."""
    return work(chunk)


def _submit(client: Any, shared: Any, chunk: Chunk, finished: Any) -> Any:
    future = client.submit(run_chunk, shared, list(chunk), pure=False)
    finished.add(future)
    return future


def _outcomes(distributed: Any, future: Any, chunk: Chunk, lost: Lost) -> list[Outcome]:
    try:
        result: list[Outcome] = future.result()
    except distributed.scheduler.KilledWorker as error:
        return [lost(point, f"its workers died: {error}") for point in chunk]
    return result
