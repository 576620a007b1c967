"""Calls from other threads: carried out by the owner, in order, with their results and errors."""

import threading
from concurrent.futures import TimeoutError as CallTimeout

import pytest

from sysid_ros.emulators.program import CallQueue


@pytest.fixture
def owner():
    """A queue whose owner works now and then in a thread of its own."""
    queue, stop = CallQueue(), threading.Event()

    def own():
        while not stop.wait(1e-3):
            queue.work()

    thread = threading.Thread(target=own)
    thread.start()
    yield queue, thread
    stop.set()
    thread.join()


def test_the_owner_does_it_and_the_caller_gets_the_result(owner):
    queue, thread = owner
    assert queue.call(threading.get_ident) == thread.ident != threading.get_ident()
    done = []
    assert [queue.call(lambda k=k: done.append(k)) for k in range(20)] == [None] * 20
    assert done == list(range(20))


def test_errors_reach_the_caller_and_the_owner_goes_on(owner):
    queue, _ = owner
    with pytest.raises(ZeroDivisionError):
        queue.call(lambda: 1 / 0)
    assert queue.call(lambda: 3) == 3


def test_an_owner_that_does_not_come_to_it_is_not_waited_for_forever():
    with pytest.raises(CallTimeout):
        CallQueue().call(lambda: None, seconds=0.01)
