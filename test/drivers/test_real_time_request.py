"""What a loop asks of the system for its own sake, and that a refusal is told."""

import gc
import os

import pytest

from sysid_ros.drivers.pacing import Scheduling, request_scheduling


@pytest.fixture
def collecting():
    """Garbage collection as in a new process again, whatever this test does to it."""
    yield
    gc.unfreeze()
    gc.enable()


def test_garbage_is_not_collected_in_the_loop_and_priority_is_asked_for(collecting, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda *arguments: asked.append(arguments))
    assert gc.isenabled()
    assert request_scheduling(True) == Scheduling(True, "SCHED_FIFO 80")
    assert not gc.isenabled() and gc.get_freeze_count() > 0
    ((process, policy, parameters),) = asked
    assert (process, policy, parameters.sched_priority) == (0, os.SCHED_FIFO, 80)


def test_a_refusal_is_told_with_its_reason_and_what_would_help(collecting, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    scheduling = request_scheduling(True)
    text = scheduling.text
    assert not scheduling.has_priority and text.startswith("normal scheduling")
    assert "Operation not permitted" in text and "grant rtprio" in text
    assert not gc.isenabled()
