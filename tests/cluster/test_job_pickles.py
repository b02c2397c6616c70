"""A pickled job: where its instance is open it is a job again, elsewhere `new_job` takes the description."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

import shmjet
from shmjet import JetConfig, JetInstance, JobConfig, JobStatus, Pipeline, sinks, sources
from shmjet.cluster.client.job import Job
from shmjet.cluster.client.job_description import JobDescription


def counted(jet: JetInstance, name: str, config: JobConfig | None = None) -> Job:
    pipeline = Pipeline()
    add = 1
    pipeline.read_from(sources.items(range(3))).map(lambda x: x + add).rebalance().write_to(sinks.list(name))
    return jet.new_job(pipeline, config)


def test_a_pickled_job_is_another_job_of_its_instance(jet: JetInstance) -> None:
    job = counted(jet, "again", JobConfig(name="described"))
    job.run(60)
    again = pickle.loads(pickle.dumps(job))
    assert (type(again), again.name, again.status) == (Job, "described", JobStatus.NOT_RUNNING)
    assert again.id != job.id
    again.run(60)
    assert sorted(jet.get_list("again")) == [1, 1, 2, 2, 3, 3]


def test_elsewhere_it_is_a_description_that_an_instance_takes(jet: JetInstance) -> None:
    with shmjet.new_instance(JetConfig(cores=1)) as other:
        data = pickle.dumps(counted(other, "far", JobConfig(name="described")))
    description = pickle.loads(data)
    assert (type(description), description.name, repr(description)) == (
        JobDescription,
        "described",
        "<JobDescription 'described'>",
    )
    job = jet.new_job(description)
    assert job.name == "described"
    job.run(60)
    assert sorted(jet.get_list("far")) == [1, 2, 3]
    assert jet.new_job(description, JobConfig(name="other")).name == "other"


def test_the_modules_of_a_pickled_job_travel(jet: JetInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sj_described.py").write_text("def triple(x):\n    return 3 * x\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        import sj_described  # type: ignore[import-not-found]
    pipeline = Pipeline()
    pipeline.read_from(sources.items([2])).map(sj_described.triple).write_to(sinks.list("tripled"))
    job = jet.new_job(pipeline, JobConfig().add_module(sj_described))
    pickle.loads(pickle.dumps(job)).run(60)
    del sys.modules["sj_described"]
    assert list(jet.get_list("tripled")) == [6]


def test_a_job_whose_code_this_client_has_not_cannot_be_pickled(jet: JetInstance) -> None:
    with pytest.raises(TypeError, match="was not made from a DAG or pipeline by this client"):
        pickle.dumps(jet.named_job("nightly"))
