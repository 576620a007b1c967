"""The TCP session on a bad stream: pieces, cuts at any byte and changed bytes while the arm is taken over or held.

In one thread over a pair of sockets, in the time of the emulated base. The same with the relay: bench/bench_kortex.py.
"""

import socket
from dataclasses import replace

import numpy as np
import pytest
from driver_doubles import started
from kortex_bench import PERIOD, RunningEmulator, make_arm, make_base, make_loop, run
from kortex_memory import Clock
from test_kortex_cut import CutArm, CutMemory

from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.kinova_kortex.enums import ControlMode, FrameType, Function, KortexConnectionLost, ServoingMode
from sysid_ros.drivers.kinova_kortex.frame import LARGEST_FRAME, Frame, TcpFrames, encode_frame, wrap_for_tcp
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.kinova_kortex.tcp import TcpSession
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.takeover import TakeoverRefused
from sysid_ros.emulators.kortex.base import TCP
from sysid_ros.emulators.relays.faults import Cut, FaultyStream, StreamFaults
from sysid_ros.emulators.relays.relay import TcpRelay
from sysid_ros.ros.other_nodes import wait_until

PERFECT = StreamFaults()


class PairedTcp(TcpSession):
    """The real session; the other end of its socket is served whenever it looks for answers."""

    def __init__(self, memory, settings):
        super().__init__(settings)
        self.memory = memory

    def open(self):
        self._socket, self.theirs = socket.socketpair()
        for one in (self._socket, self.theirs):
            one.setblocking(False)
        memory = self.memory
        memory.up, memory.down = FaultyStream(memory.faults[0]), FaultyStream(memory.faults[1])
        self.frames, self.queue, self.is_connected = TcpFrames(), [], True
        self.open_session()

    def serve(self):
        """What the base does meanwhile, through both bad directions."""
        memory, now = self.memory, self.memory.time
        if not self.is_connected:
            return
        try:
            data = self.theirs.recv(65536)
        except BlockingIOError:
            data = b""
        self.queue += [(piece.due, True, piece.data) for piece in (memory.up.pass_on(data, now) if data else ())]
        due = [one for one in self.queue if one[0] <= now]
        self.queue = [one for one in self.queue if one[0] > now]
        for _, is_to_base, data in due:
            if not is_to_base:
                self.theirs.sendall(data)
                continue
            for frame in self.frames.feed(data):
                answer = memory.base.answer(TCP, "memory", frame)
                if answer is not None:
                    pieces = memory.down.pass_on(wrap_for_tcp(answer), now)
                    self.queue += [(piece.due, False, piece.data) for piece in pieces]
        if memory.up.is_cut or memory.down.is_cut and not self.queue:
            self.hang_up()

    def hang_up(self):
        self.is_connected = False
        self.theirs.close()
        if self.memory.is_base_told:
            self.memory.base.disconnect("memory")

    def poll(self):
        self.serve()
        self.serve()  # what the answers of before are worth
        super().poll()

    def wait(self, call, seconds):
        end = self.memory.time + seconds
        while not call.is_done():
            if self.memory.time > end:
                raise KortexConnectionLost(f"no answer to {call.name} for {seconds:g} s")
            self.memory.pass_period()
        return call.result()

    def close(self, seconds=0.3):
        super().close(seconds)
        if getattr(self, "is_connected", False):
            self.hang_up()


class PairedArm(CutArm):
    def __init__(self, monkeypatch, memory):
        monkeypatch.setattr("sysid_ros.drivers.kinova_kortex.tcp.time", Clock(memory))
        super().__init__(monkeypatch, memory)

    def _open(self):
        client = super()._open()
        client._tcp = PairedTcp(self.memory, self.settings)
        return client


def start(monkeypatch, to_base=PERFECT, to_client=PERFECT, is_base_told=True):
    memory = CutMemory(make_base(payload="dumbbell_4lb"), "none")
    memory.start, memory.faults, memory.is_base_told = memory.base.arm.q.copy(), (to_base, to_client), is_base_told
    return memory, PairedArm(monkeypatch, memory)


def hold(memory, arm, cycles=20):
    for _ in range(cycles):
        memory.pass_period()
        arm.read()
        arm.command(arm._exchange.torque)


def expect_held(memory, words=""):
    """By its base, where it was, after some time without a driver."""
    for _ in range(150):
        memory.pass_period()
    base = memory.base
    assert memory.farthest < 2e-3 and np.abs(base.arm.v).max() < 1e-3, words
    assert base.servoing is ServoingMode.SINGLE_LEVEL and set(base.actuators.modes) == {ControlMode.POSITION}, words


@pytest.mark.parametrize(
    "faults",
    [StreamFaults(piece=1), StreamFaults(piece=7, pause=2e-4), StreamFaults(gather=0.02), StreamFaults(delay=0.03)],
)
def test_frames_are_put_together_from_pieces_and_taken_apart_from_lumps(monkeypatch, faults):
    memory, arm = start(monkeypatch, faults, faults)
    arm.connect()
    hold(memory, arm)
    assert arm._exchange.client.overdue == 0.0 and arm._exchange.client.find_break() is None
    arm.stop("test")
    assert arm.health()["last problem of handing back"] == "none"
    arm.close()
    expect_held(memory)
    assert memory.base.reports[-1] == "the base holds the arm: asked for" and not len(memory.base.sessions)


def test_signs_of_life_keep_the_session_open(monkeypatch):
    memory, arm = start(monkeypatch)
    arm.settings = replace(arm.settings, connection_inactivity_timeout=0.3)
    arm.connect()
    hold(memory, arm, 700)
    assert len(memory.base.sessions) == 2 and arm._exchange.client.overdue == 0.0
    arm.close()
    expect_held(memory)


def test_an_answer_that_comes_later_than_the_bases_watchdog_is_named_as_the_reason(monkeypatch):
    """Between its request and its answer no command may be sent, and the base does not wait for ever."""
    memory, arm = start(monkeypatch, StreamFaults(delay=0.11), StreamFaults(delay=0.11))
    arm.settings = replace(arm.settings, call_timeout=1.0, connect_timeout=1.0)
    with pytest.raises(TakeoverRefused, match=r"answered after 0.2\d s .*WRONG_SERVOING_MODE.*TCP connection slow"):
        arm.connect()
    expect_held(memory)


def count_bytes(monkeypatch, phase):
    """Bytes of both directions that pass while the arm is taken over, or handed back."""
    memory, arm = start(monkeypatch)
    arm.connect()
    passed = memory.up.passed, memory.down.passed
    if phase == "stop":
        arm.stop("test")
        passed = memory.up.passed - passed[0], memory.down.passed - passed[1]
    arm.close()
    return passed


@pytest.mark.parametrize(("phase", "step"), [("connect", 43), ("stop", 31)])
def test_a_connection_that_is_closed_at_any_byte_leaves_the_arm_held(monkeypatch, phase, step):
    """Steps that are no multiple of a frame's length: cuts lie in marks, lengths and payloads, and between frames.

    In turn the base notices that the connection is gone, and does not.
    """
    told = []
    for direction, count in enumerate(count_bytes(monkeypatch, phase)):
        for end in range(5 * direction, count, step):
            cut = [PERFECT, PERFECT]
            cut[direction] = StreamFaults(cut=Cut.FIN, cut_at=end)
            faults = cut if phase == "connect" else (PERFECT, PERFECT)
            memory, arm = start(monkeypatch, *faults, is_base_told=len(told) % 2 == 0)
            said = ""
            try:
                arm.connect()
            except ArmError as error:
                said = str(error)
            if phase == "stop":
                hold(memory, arm)
                memory.up, memory.down = map(FaultyStream, cut)
                arm.stop("test")
                said = arm.health()["last problem of handing back"]
            arm.close()
            expect_held(memory, (direction, end, said))
            told.append("base has closed the TCP connection" in said or "TCP connection has broken (Broken" in said)
    assert len(told) > 15 and all(told), told


@pytest.mark.parametrize("is_base_told", [True, False])
def test_a_connection_that_is_closed_while_the_arm_is_held_is_told_and_gives_it_back(monkeypatch, is_base_told):
    memory, arm = start(monkeypatch, is_base_told=is_base_told)
    arm.connect()
    hold(memory, arm)
    arm._exchange.client._tcp.hang_up()
    if is_base_told:
        with pytest.raises(ArmError, match="WRONG_SERVOING_MODE.*; the base has closed the TCP connection"):
            hold(memory, arm)
    else:  # it still obeys, and is braked
        hold(memory, arm)
        (fault,) = arm.read().faults
        assert fault.startswith("the base does not answer over TCP (the base has closed the TCP connection): it cannot")
    arm.stop("test")
    assert "the base has closed the TCP connection" in arm.health()["last problem of handing back"]
    arm.close()
    expect_held(memory)
    arm.connect()  # with another connection the arm is had again
    hold(memory, arm)
    arm.close()
    expect_held(memory)


# Bytes that are changed


def test_any_changed_byte_ends_in_words_and_the_arm_is_held(monkeypatch):
    """In what the base answers: in marks, lengths (longer, shorter, endless), headers and payloads."""
    total, outcomes = count_bytes(monkeypatch, "connect")[1], {}
    for place in range(3, total, 29):
        flip = 0x80 >> place % 8
        memory, arm = start(monkeypatch, to_client=StreamFaults(corrupt_at=place, corrupt_with=flip))
        said, begun = "", memory.time
        try:
            arm.connect()
        except ArmError as error:
            said = str(error)
        assert memory.time - begun < 3.0, (place, said)
        arm.close()
        expect_held(memory, (place, flip, said))
        outcomes[said.split(":")[1].strip()[:18] if ":" in said else said] = place
    assert {"the TCP stream can", ""} < set(outcomes) and len(outcomes) > 3, outcomes


class Peer:
    """A session on a pair of sockets, opened as number 5; the other end is ours."""

    def __init__(self, monkeypatch):
        self.time, self.ours = 0.0, None
        monkeypatch.setattr("sysid_ros.drivers.kinova_kortex.tcp.time", Clock(self))
        self.session = TcpSession(KortexSettings())
        self.session._socket, self.ours = socket.socketpair()
        self.session._socket.setblocking(False)
        self.session.is_open, self.session.reason, self.session.session = True, None, 5

    def response(self, call, session=5):
        return wrap_for_tcp(encode_frame(Frame(FrameType.RESPONSE, Function.GET_ARM_STATE, session, call.message)))

    def pass_time(self, seconds, data=b""):
        for _ in range(round(seconds / 0.01)):
            self.time += 0.01
            self.session.keep_alive()
            if data and self.session.is_open:
                self.ours.sendall(data)


@pytest.fixture
def peer(monkeypatch):
    one = Peer(monkeypatch)
    yield one
    one.ours.close()
    one.session.close(0.0)


@pytest.mark.parametrize("extra", [1, 1000, LARGEST_FRAME - 100])
def test_a_length_that_announces_too_much_is_given_up_and_never_waited_for(peer, extra):
    """All later answers would count as the rest of that frame, for hours; what is kept of it is bounded."""
    call = peer.session.start(Function.GET_ARM_STATE)
    data = bytearray(peer.response(call))
    data[8:12] = (len(data) - 12 + extra).to_bytes(4, "big")
    peer.ours.sendall(data)
    peer.pass_time(0.9)
    assert peer.session.is_open and not call.is_done() and peer.session._frames.pending == len(data)
    peer.pass_time(0.3)
    assert not peer.session.is_open and call.is_done() and peer.session.overdue == np.inf
    with pytest.raises(KortexConnectionLost, match=rf"a frame of {len(data) + extra} bytes is not complete after 1 s"):
        call.result()


def test_a_length_beyond_all_frames_is_refused_at_once_and_nothing_is_allocated(peer):
    call = peer.session.start(Function.GET_ARM_STATE)
    peer.ours.sendall(peer.response(call)[:8] + b"\xff\xff\xff\xff")
    assert call.is_done()
    with pytest.raises(KortexConnectionLost, match="a frame of 4294967295 bytes is announced"):
        call.result()


def test_what_is_kept_is_bounded_whatever_comes(peer):
    frame = wrap_for_tcp(bytes(LARGEST_FRAME))
    largest = 0
    frames = TcpFrames()
    for k in range(0, len(frame) - 1, 4096):
        frames.feed(frame[k : min(k + 4096, len(frame) - 1)])
        largest = max(largest, frames.pending)
    assert largest == len(frame) - 1 == frames.announced - 1
    assert len(frames.feed(frame[-1:])[0]) == LARGEST_FRAME and frames.pending == 0


def test_a_rest_before_a_frame_in_pieces_is_not_counted_as_waiting_for_it(peer):
    call = peer.session.start(Function.GET_ARM_STATE)
    data = peer.response(call)
    peer.pass_time(10.0)
    for k in range(len(data)):
        peer.ours.sendall(data[k : k + 1])
        peer.pass_time(0.02)
    assert call.is_done() and peer.session.is_open


def test_the_base_hears_of_us_even_where_an_answer_to_a_sign_of_life_is_lost(peer):
    peer.ours.setblocking(False)
    peer.pass_time(1.6)
    sent = TcpFrames().feed(peer.ours.recv(65536))
    assert len(sent) == 4 and peer.session.overdue == pytest.approx(1.6)
    assert len(peer.session._waiting) == 1 and peer.session.is_open


def test_no_answer_changes_the_session(peer):
    call = peer.session.start(Function.GET_ARM_STATE)
    peer.ours.sendall(peer.response(call, session=77))
    assert call.is_done() and peer.session.session == 5


# Over real sockets, through the relay


def test_pieces_and_a_reset_over_real_sockets():
    base = make_base(payload="0.6")
    with RunningEmulator(base) as emulator:
        slow = StreamFaults(piece=5, pause=2e-4)
        with TcpRelay(emulator.server.address, slow, slow) as relay:
            loop = started(make_loop(make_arm(emulator, port=relay.address[1])), 0.1)
            assert loop.mode is LoopMode.HOLD
            relay.change(to_client=StreamFaults(cut=Cut.RST))
            assert wait_until(lambda: (run(loop, 50 * PERIOD), loop.is_handed_back)[1], 60.0)
            assert "WRONG_SERVOING_MODE" in loop.status().reason
            assert base.servoing is ServoingMode.SINGLE_LEVEL
            relay.change(slow, slow)
            loop.connect()
            run(loop, 0.1)
            assert loop.mode is LoopMode.HOLD
            loop.release("test")
    assert base.reports[-1] == "the base holds the arm: asked for" and np.abs(base.arm.v).max() < 0.01
