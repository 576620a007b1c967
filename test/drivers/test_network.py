"""Counters of a sender: against a plain simulation of what was lost."""

import numpy as np

from sysid_ros.drivers.network import Arrival, SequenceMonitor, UdpEndpoint


def test_random_losses_repetitions_and_delays_are_counted_as_they_were_made():
    rng = np.random.default_rng(7)
    watch, lost, duplicated, late, new = SequenceMonitor(), 0, 0, 0, 0
    held = None
    for k in range(1, 20_000):
        if rng.random() < 0.05:
            lost += 1
            continue
        if held is None and rng.random() < 0.02:
            held = k
            continue
        assert watch.judge(k) is Arrival.NEW
        new += 1
        if rng.random() < 0.03:
            assert watch.judge(k) is Arrival.OLD
            duplicated += 1
        elif held is not None and k - held > 1:
            assert watch.judge(held) is Arrival.OLD
            late, held = late + 1, None
    counts = watch.counts
    assert (counts.received, counts.duplicated, counts.late, counts.restarts) == (new, duplicated, late, 0)
    assert abs(counts.lost - lost) <= 2 and counts.gaps > 500


def test_a_restart_is_believed_only_in_a_row():
    watch = SequenceMonitor()
    for k in (1000, 1001, 5, 1002, 6, 1003):
        assert watch.judge(k) is (Arrival.NEW if k >= 1000 else Arrival.OLD)
    assert [watch.judge(k) for k in (7, 8, 9, 10)] == [Arrival.OLD, Arrival.OLD, Arrival.RESTART, Arrival.NEW]
    assert watch.last == 10 and watch.counts.restarts == 1


def test_garbage_makes_nobody_the_peer_and_only_the_peer_is_heard():
    """Garbage from the robot's own address, but another port, is neither answered nor does it displace the peer."""
    own = UdpEndpoint("127.0.0.1", 0, "127.0.0.1", is_from_peer=lambda datagram: datagram.startswith(b"good"))
    robot, other = UdpEndpoint("127.0.0.1", peer=own.address), UdpEndpoint("127.0.0.1", peer=own.address)
    try:
        other.send(b"garbage")
        assert own.receive(60.0) == b"garbage" and own.peer is None
        assert not own.send(b"answer")
        robot.send(b"good 1")
        assert own.receive(60.0) == b"good 1" and own.peer == robot.address
        other.send(b"garbage")
        other.send(b"good, but of another")
        robot.send(b"not so good")
        assert own.receive(60.0) == b"not so good" and own.ignored == 2
        assert own.send(b"answer") and robot.receive(60.0) == b"answer" and other.receive(0.05) is None
        own.forget_peer()
        other.send(b"good now")
        assert own.receive(60.0) == b"good now" and own.peer == other.address
    finally:
        for endpoint in (own, robot, other):
            endpoint.close()


def test_without_such_a_test_whoever_was_heard_last_is_the_peer():
    own, one, other = (UdpEndpoint("127.0.0.1") for _ in range(3))
    try:
        for endpoint in (one, other):
            endpoint.peer = own.address
            endpoint.send(b"anything")
            assert own.receive(60.0) == b"anything" and own.peer == endpoint.address
    finally:
        for endpoint in (own, one, other):
            endpoint.close()
