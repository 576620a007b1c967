"""What the relay does to streams: pieces, delays, changes and ends, exactly where they were asked for."""

import contextlib
import socket
import time

import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.emulators.relays.faults import Cut, FaultyStream, StreamFaults
from sysid_ros.emulators.relays.relay import TcpRelay

DATA = bytes(range(1, 201))


def pass_on(*parts, now=0.0, **faults):
    stream = FaultyStream(StreamFaults(**faults))
    return [piece for k, part in enumerate(parts) for piece in stream.pass_on(part, now + k)], stream


def test_a_perfect_stream_changes_nothing():
    pieces, stream = pass_on(DATA[:70], DATA[70:])
    assert [tuple(piece) for piece in pieces] == [(0.0, DATA[:70]), (1.0, DATA[70:])]
    assert stream.passed == 200 and not stream.is_cut


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_pieces_keep_their_order_and_their_distance_in_time(piece):
    pieces, _ = pass_on(DATA[:100], DATA[100:], piece=piece, pause=0.02, delay=0.5)
    assert b"".join(one.data for one in pieces) == DATA and max(len(one.data) for one in pieces) == piece
    dues = [one.due for one in pieces]
    assert dues[0] == 0.5 and all(b - a >= 0.02 - 1e-12 for a, b in zip(dues, dues[1:], strict=False))


def test_what_is_gathered_arrives_together():
    pieces, _ = pass_on(DATA[:10], DATA[10:20], DATA[20:], gather=3.0, now=0.5)
    assert [one.due for one in pieces] == [3.0, 3.0, 3.0]


def test_one_byte_is_changed_wherever_it_is():
    for place in (0, 69, 70, 199, 200):
        pieces, _ = pass_on(DATA[:70], DATA[70:], corrupt_at=place, corrupt_with=0x81)
        found = b"".join(one.data for one in pieces)
        assert [k for k in range(200) if found[k] != DATA[k]] == ([place] if place < 200 else [])
        assert place == 200 or found[place] == DATA[place] ^ 0x81


@pytest.mark.parametrize("cut", [Cut.FIN, Cut.RST, Cut.SILENCE])
def test_nothing_arrives_after_the_cut(cut):
    for end in (0, 1, 70, 199, 200):
        pieces, stream = pass_on(DATA[:70], DATA[70:], cut=cut, cut_at=end)
        assert b"".join(one.data for one in pieces if one.due < 10.0) == DATA[:end] and stream.is_cut
        held = b"".join(one.data for one in pieces if one.due > 10.0)
        assert held == (DATA[end:] if cut is Cut.SILENCE else b"")


@pytest.mark.parametrize("changes", [{"delay": -1.0}, {"corrupt_with": 0}, {"cut_at": -1}, {"piece": -1}])
def test_impossible_faults_are_refused(changes):
    with pytest.raises(ParameterOutOfRange):
        StreamFaults(**changes)


# Over sockets


@contextlib.contextmanager
def connected(**faults):
    """A client and a server, with faults from the server to the client once both are connected."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with TcpRelay(listener.getsockname()) as relay:
            with socket.create_connection(relay.address) as client:
                server, _ = listener.accept()
                with server:
                    client.settimeout(5.0)
                    server.settimeout(5.0)
                    relay.change(to_client=StreamFaults(**faults))
                    yield client, server, relay


def receive(one, count):
    data = b""
    while len(data) < count and (more := one.recv(count - len(data))):
        data += more
    return data


def test_bytes_go_both_ways_and_the_end_too():
    with connected() as (client, server, relay):
        client.sendall(b"question")
        assert receive(server, 8) == b"question"
        server.sendall(DATA)
        assert receive(client, 200) == DATA and relay.passed() == (8, 200)
        client.shutdown(socket.SHUT_WR)
        assert server.recv(1) == b""
        server.sendall(b"last")
        server.close()
        assert receive(client, 5) == b"last"


def test_pieces_and_changes_arrive_over_sockets():
    with connected(piece=3, pause=0.002, corrupt_at=5) as (client, server, _):
        started = time.monotonic()
        server.sendall(DATA)
        found = receive(client, 200)
        assert [k for k in range(200) if found[k] != DATA[k]] == [5]
        assert time.monotonic() - started >= 66 * 0.002  # between the first and the last of 67 pieces


@pytest.mark.parametrize("cut", [Cut.FIN, Cut.RST])
@pytest.mark.parametrize("end", [0, 77, 200])
def test_both_ends_are_told_of_a_cut(cut, end):
    with connected(cut=cut, cut_at=end) as (client, server, _):
        found, is_told = b"", False
        try:
            server.sendall(DATA)
        except ConnectionError:  # the reset is told once, here or below
            is_told = True
        try:
            while more := client.recv(200):
                found += more
            is_reset = False
        except ConnectionResetError:
            is_reset = True
        assert is_reset == (cut is Cut.RST) and (found == DATA[:end] or is_reset)
        try:
            assert server.recv(1) == b"" and (cut is Cut.FIN or is_told)
        except ConnectionResetError:
            assert cut is Cut.RST


def test_silence_holds_back_what_comes_after_it_until_it_is_over():
    with connected(cut=Cut.SILENCE, cut_at=50) as (client, server, relay):
        server.sendall(DATA)
        assert receive(client, 50) == DATA[:50]
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(5.0)
        relay.change()
        assert receive(client, 150) == DATA[50:]


def test_a_server_that_is_not_there_is_told_by_a_reset():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with TcpRelay(address) as relay, pytest.raises(ConnectionResetError):
        # The reset may come before connecting has returned.
        with socket.create_connection(relay.address) as client:
            client.settimeout(5.0)
            client.recv(1)


def test_delays_are_kept():
    with connected(delay=0.15) as (client, server, _):
        started = time.monotonic()
        server.sendall(b"slow")
        assert receive(client, 4) == b"slow" and time.monotonic() - started >= 0.15
