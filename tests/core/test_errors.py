"""Errors keep what they carry on their way from a worker to a client."""

import pickle

import pytest

from shmjet.data import errors
from shmjet.data.errors import DagError, JobFailedError, PlanError, ShmjetError, WorkerLostError


def test_every_error_is_a_shmjet_error():
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and kind.__module__ == errors.__name__:
            assert issubclass(kind, ShmjetError), name


@pytest.mark.parametrize("kind", [DagError, PlanError])
def test_errors_about_descriptions_are_value_errors_too(kind):
    assert issubclass(kind, ValueError)


def test_job_failed_error_survives_pickling_with_its_cause():
    error = JobFailedError("it broke", vertex="map", processor_index=3, member="local", cause=KeyError("k"))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.vertex, copy.processor_index, copy.member) == ("it broke", "map", 3, "local")
    assert repr(copy.cause) == "KeyError('k')"
    assert repr(copy.__cause__) == "KeyError('k')"


def test_worker_lost_error_survives_pickling():
    copy = pickle.loads(pickle.dumps(WorkerLostError("gone", pid=12, signal=9, vertices=["a", "b"])))
    assert (str(copy), copy.pid, copy.signal, copy.vertices) == ("gone", 12, 9, ("a", "b"))


def test_attributes_default_to_unknown():
    assert JobFailedError("x").vertex is None
    assert WorkerLostError("x").vertices == ()
