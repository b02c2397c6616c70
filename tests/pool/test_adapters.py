"""The pool in the hands of other libraries; each is skipped where it is not installed (extra `pool`)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from shmjet import PoolExecutor


def square(x: int) -> int:
    return x * x


def fail(x: int) -> float:
    return 1 / x


@pytest.fixture(scope="module")
def joblib() -> Iterator[Any]:
    """Its workers stay from test to test."""
    joblib = pytest.importorskip("joblib")
    import shmjet.joblib

    yield joblib
    shmjet.joblib.shutdown()


def test_asyncio_run_in_executor() -> None:
    async def gather() -> list[int]:
        loop = asyncio.get_running_loop()
        with PoolExecutor(2) as pool:
            return await asyncio.gather(*(loop.run_in_executor(pool, square, i) for i in range(20)))

    assert asyncio.run(gather()) == [i * i for i in range(20)]


def test_joblib(joblib: Any) -> None:
    with joblib.parallel_config(backend="shmjet"):
        results = joblib.Parallel(n_jobs=2)(joblib.delayed(square)(i) for i in range(1000))
        assert results == [i * i for i in range(1000)]
        pids = set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(10)))
        again = set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(10)))
    assert os.getpid() not in pids
    assert len(pids | again) <= 2


def test_joblib_raises_and_goes_on(joblib: Any) -> None:
    with joblib.parallel_config(backend="shmjet", n_jobs=2):
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(fail)(i) for i in (1, 0, 2))
        assert joblib.Parallel()(joblib.delayed(fail)(i) for i in (1, 2)) == [1.0, 0.5]


def test_joblib_gives_results_as_a_generator(joblib: Any) -> None:
    with joblib.parallel_config(backend="shmjet", n_jobs=2):
        results = joblib.Parallel(return_as="generator")(joblib.delayed(square)(i) for i in range(10))
        assert list(results) == [i * i for i in range(10)]


def test_joblib_inside_a_worker(joblib: Any) -> None:
    def inner(n: int) -> int:
        return sum(joblib.Parallel(n_jobs=2)(joblib.delayed(square)(i) for i in range(n)))

    with joblib.parallel_config(backend="shmjet", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(inner)(n) for n in (2, 3)) == [1, 5]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_scikit_learn_grid_search(joblib: Any) -> None:
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.tree import DecisionTreeClassifier

    data, target = load_iris(return_X_y=True)
    tree = DecisionTreeClassifier(random_state=0)
    with joblib.parallel_config(backend="shmjet"):
        search = GridSearchCV(tree, {"max_depth": [1, 2, 3]}, n_jobs=2).fit(data, target)
    alone = GridSearchCV(tree, {"max_depth": [1, 2, 3]}, n_jobs=1).fit(data, target)
    assert search.best_params_ == alone.best_params_
    assert list(search.cv_results_["mean_test_score"]) == list(alone.cv_results_["mean_test_score"])


@pytest.mark.filterwarnings("default")
def test_dask(eventually: Any) -> None:
    dask = pytest.importorskip("dask")
    total = dask.delayed(sum)([dask.delayed(square)(i) for i in range(20)])
    pid = dask.delayed(os.getpid)()
    with PoolExecutor(2) as pool, dask.config.set(pool=pool, scheduler="processes"):
        assert total.compute() == sum(i * i for i in range(20))
        found = pid.compute()
        eventually(lambda: found in pool.worker_pids)


HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "joblib":
            raise ModuleNotFoundError(f"No module named {name!r}", name="joblib")

sys.meta_path.insert(0, Hidden())
import shmjet.joblib
"""


def test_without_joblib_the_backend_says_what_to_install() -> None:
    ended = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.endswith("shmjet.joblib needs the package 'joblib': pip install joblib\n")
