"""What processors are told."""

from pathlib import Path

import pytest

from shmjet.core import JobConfig, ProcessingGuarantee, ProcessorContext, ProcessorError


def test_the_guarantee_is_that_of_the_job():
    context = ProcessorContext(job_config=JobConfig(processing_guarantee=ProcessingGuarantee.AT_LEAST_ONCE))
    assert context.processing_guarantee is ProcessingGuarantee.AT_LEAST_ONCE


def test_cancellation_is_asked_for_each_time():
    answers = [False, True]
    context = ProcessorContext(cancelled=lambda: answers.pop(0))
    assert [context.is_cancelled, context.is_cancelled] == [False, True]
    assert not ProcessorContext().is_cancelled


def test_attached_files_are_found_by_id_and_others_named():
    context = ProcessorContext(vertex_name="v", attached_files={"model": Path("/x")})
    assert context.attached_file("model") == Path("/x")
    with pytest.raises(ProcessorError, match="vertex 'v': no file 'data' is attached to the job; attached: 'model'"):
        context.attached_file("data")
    with pytest.raises(ProcessorError, match="attached: nothing"):
        ProcessorContext().attached_file("data")
