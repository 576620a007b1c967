"""Calls from other threads: carried out by the owner, in order, with their results and errors."""

import threading
from concurrent.futures import TimeoutError as CallTimeout

import pytest

from sysid_ros.emulators.program import CyclicServer


class Server(CyclicServer):
    """Serves nobody; its controller is a list."""

    is_in_use = False

    def cycle(self):
        self._call_waiting()

    def close(self):
        pass


@pytest.fixture
def owner():
    """A server whose cycles run now and then in a thread of its own."""
    server, stop = Server([]), threading.Event()

    def own():
        while not stop.wait(1e-3):
            server.cycle()

    thread = threading.Thread(target=own)
    thread.start()
    yield server, thread
    stop.set()
    thread.join()


def test_the_owner_does_it_and_the_caller_gets_the_result(owner):
    server, thread = owner
    assert server.between_cycles(lambda _: threading.get_ident()) == thread.ident != threading.get_ident()
    assert [server.between_cycles(lambda done, k=k: done.append(k)) for k in range(20)] == [None] * 20
    assert server.between_cycles(list) == list(range(20))


def test_errors_reach_the_caller_and_the_owner_goes_on(owner):
    server, _ = owner
    with pytest.raises(ZeroDivisionError):
        server.between_cycles(lambda _: 1 / 0)
    assert server.between_cycles(lambda _: 3) == 3


def test_an_owner_that_does_not_come_to_it_is_not_waited_for_forever():
    with pytest.raises(CallTimeout):
        Server([]).between_cycles(len, seconds=0.01)
