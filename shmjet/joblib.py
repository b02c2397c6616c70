"""A backend for joblib, and so for scikit-learn: importing this module registers it as `"shmjet"`.

Its pool is kept from one `Parallel` call to the next, as joblib keeps loky's, and ends with the interpreter or with
`shutdown`.

Example:
    >>> import joblib, shmjet.joblib                                             # doctest: +SKIP
    >>> with joblib.parallel_config(backend="shmjet"):                           # doctest: +SKIP
    ...     joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-i) for i in range(3))
    [0, 1, 2]
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

try:
    from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend
except ModuleNotFoundError as error:
    if error.name != "joblib":
        raise
    raise ModuleNotFoundError("shmjet.joblib needs the package 'joblib': pip install joblib", name="joblib") from None

from shmjet.pool import PoolExecutor

__all__ = ["ShmjetBackend", "shutdown"]

_lock = threading.Lock()
_pool: PoolExecutor | None = None
_owner = 0


class ShmjetBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """joblib's view of a `PoolExecutor`."""

    supports_retrieve_callback = True
    supports_timeout = True
    supports_sharedmem = False
    uses_threads = False

    _executor: PoolExecutor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many workers `n_jobs` means: -1 is one for each core, -2 one less."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        cores = len(os.sched_getaffinity(0))
        return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Get ready for a `Parallel` call; returns the number of workers."""
        count = self.effective_n_jobs(n_jobs)
        self.parallel = parallel
        self._executor = _pool_of(count)
        return count

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], object] | None = None) -> Future[Any]:
        """Have a batch of calls run; the callback gets its future."""
        assert self._executor is not None
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit
    """How joblib before 1.5 calls it."""

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        """Return the results of a batch; called by its callback."""
        return future.result()

    def terminate(self) -> None:
        """Leave the pool to the next call."""
        self._executor = None
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Kill what runs, as one of the calls has failed or was too late."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.kill_workers()
            executor.shutdown()
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel)


def _pool_of(workers: int) -> PoolExecutor:
    """Return the pool that is kept, or another one when it has not that many workers or has ended."""
    global _pool, _owner
    with _lock:
        if _pool is not None and _owner == os.getpid() and _pool.max_workers == workers and _pool.is_usable:
            return _pool
        if _pool is not None and _owner == os.getpid():
            _pool.shutdown(wait=False)
        _pool, _owner = PoolExecutor(workers), os.getpid()
        return _pool


def shutdown() -> None:
    """End the workers that are kept for the next call."""
    global _pool
    with _lock:
        pool, _pool = _pool, None
    if pool is not None:
        pool.shutdown()


register_parallel_backend("shmjet", ShmjetBackend)
