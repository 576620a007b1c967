import socket

import numpy as np
import pytest

from sysid_ros.drivers.channel import Channel


@pytest.fixture
def ends():
    ends = [Channel(end) for end in socket.socketpair()]
    yield ends
    for end in ends:
        end.close()


def test_messages_arrive_in_order_and_nothing_waits(ends):
    ours, theirs = ends
    assert theirs.poll() == [] and theirs.wait(0.0) == []
    ours.send({"a": 1})
    ours.send([1, 2, 3])
    assert theirs.wait(5.0) == [{"a": 1}, [1, 2, 3]]


def test_large_messages_are_sent_piece_by_piece(ends):
    ours, theirs = ends
    big = np.arange(500_000)
    ours.send(big)
    assert not ours.flush()  # more than the socket holds: the rest waits here
    received = []
    for _ in range(1000):
        ours.flush()
        received += theirs.poll()
        if received:
            break
    np.testing.assert_array_equal(received[0], big)


def test_a_closed_end_is_noticed_after_its_last_message(ends):
    ours, theirs = ends
    ours.send("last words")
    ours.close()
    assert theirs.wait(5.0) == ["last words"]
    with pytest.raises(EOFError):
        theirs.poll()
    with pytest.raises(EOFError):
        for _ in range(100):
            theirs.send("anybody?")


class _Unreadable(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first}{second}")


def test_a_message_that_cannot_be_read_does_not_keep_out_later_ones(ends):
    ours, theirs = ends
    ours.send(_Unreadable("of", "a library"))
    ours.send("brake")
    with pytest.raises(TypeError):
        theirs.wait(5.0)
    ours.send("status")
    assert theirs.wait(5.0) == ["brake", "status"]
