"""What the relay does to datagrams: the rates that are asked for, in both directions, over real sockets."""

import time

import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.network import UdpEndpoint
from sysid_ros.emulators.relays.faults import FaultyDirection, NetworkFaults
from sysid_ros.emulators.relays.relay import FaultyRelay
from sysid_ros.ros.other_nodes import wait_until

N = 5_000


def deliveries(n=N, seed=1, **faults):
    direction = FaultyDirection(NetworkFaults(**faults), seed)
    return [direction.pass_on(k.to_bytes(4, "big") + bytes(60)) for k in range(n)], direction.counts


def numbers(passed):
    return [int.from_bytes(one.data[:4], "big") for each in passed for one in each]


def test_a_perfect_network_changes_nothing():
    passed, counts = deliveries()
    assert numbers(passed) == list(range(N)) and counts == {"delivered": N}
    assert all(one.delay == 0.0 and len(one.data) == 64 for each in passed for one in each)


@pytest.mark.parametrize("loss", [0.001, 0.05, 0.2])
@pytest.mark.parametrize("burst", [1.0, 8.0])
def test_losses_have_the_rate_and_the_length_asked_for(loss, burst):
    passed, counts = deliveries(n=8 * N, loss=loss, burst=burst)
    is_lost = np.array([not each for each in passed])
    assert is_lost.mean() == pytest.approx(loss, rel=0.8 if loss < 0.01 else 0.15)
    assert counts["lost"] == is_lost.sum()
    lengths = np.diff(np.flatnonzero(np.diff(np.concatenate([[0], is_lost.astype(int), [0]]))))[::2]
    expected = burst if burst > 1.0 else 1.0 / (1.0 - loss)
    assert lengths.mean() == pytest.approx(expected, rel=0.6 if loss < 0.01 else 0.2)


def test_duplicates_reordering_truncation_corruption_and_inserted_bytes():
    passed, counts = deliveries(duplicate=0.1)
    assert len(numbers(passed)) == pytest.approx(1.1 * N, rel=0.02)
    passed, counts = deliveries(reorder=0.1)
    order = numbers(passed)
    assert set(range(N - 1)) <= set(order) <= set(range(N)) and len(order) == len(set(order))
    assert abs((np.diff(order) < 0).sum() - counts["reordered"]) <= 1  # the last one may still be held back
    passed, counts = deliveries(truncate=0.1)
    assert sum(len(one.data) < 64 for each in passed for one in each) == counts["truncated"]
    passed, counts = deliveries(corrupt=0.1)
    sent = [k.to_bytes(4, "big") + bytes(60) for k in range(N)]
    changed = [one.data for data, each in zip(sent, passed, strict=True) for one in each if one.data != data]
    assert len(changed) == pytest.approx(counts["corrupted"], abs=5) and all(len(data) == 64 for data in changed)
    passed, counts = deliveries(insert=0.1)
    assert sum(len(each) - 1 for each in passed) == counts["inserted"] == pytest.approx(0.1 * N, rel=0.1)


def test_delays_lie_in_their_range():
    passed, _ = deliveries(delay=0.01, delay_spread=0.02)
    delays = np.array([one.delay for each in passed for one in each])
    assert delays.min() >= 0.01 and delays.max() <= 0.03 and delays.std() == pytest.approx(0.02 / 12**0.5, rel=0.05)


@pytest.mark.parametrize("changes", [{"loss": 1.5}, {"burst": 0.5}, {"delay": -1.0}, {"loss": 1.0, "burst": 2.0}])
def test_impossible_faults_are_refused(changes):
    with pytest.raises(ParameterOutOfRange):
        NetworkFaults(**changes)


def receive_twice(endpoint):
    """Two datagrams, after which there is no third."""
    received = [endpoint.receive(60.0), endpoint.receive(60.0)]
    assert endpoint.receive(0.1) is None
    return received


def test_datagrams_go_both_ways_over_sockets():
    client, server = UdpEndpoint("127.0.0.1"), UdpEndpoint("127.0.0.1")
    with FaultyRelay(client.address, NetworkFaults(duplicate=1.0)) as relay:
        server.peer = relay.address
        assert server.send(b"question")
        assert receive_twice(client) == [b"question"] * 2
        assert client.send(b"answer")
        assert receive_twice(server) == [b"answer"] * 2
        relay.change(NetworkFaults(loss=1.0))
        server.send(b"lost")
        assert wait_until(lambda: relay.counts()[0] == {"lost": 1}, 60.0)
        assert client.receive(0.1) is None
        relay.change(NetworkFaults(delay=0.2))
        started = time.monotonic()
        server.send(b"slow")
        assert client.receive(60.0) == b"slow" and time.monotonic() - started >= 0.2
    client.close()
    server.close()


def test_an_endpoint_keeps_only_its_peers_and_survives_their_absence():
    one, other = UdpEndpoint("127.0.0.1"), UdpEndpoint("127.0.0.1", peer_host="127.0.0.9")
    one.peer = other.address
    assert other.send(b"x") is False  # nobody has been heard
    assert one.send(b"from the wrong host") and other.receive(0.1) is None and other.ignored == 1
    other.close()
    for _ in range(3):  # the system reports that the port is closed; that is no fault of ours
        one.send(b"x")
        assert one.receive(0.02) is None
    one.close()
