"""Kortex over real sockets: timing, bad networks, random datagrams.

``python bench/bench_kortex.py [--seconds S] [--fuzz N] [--only timing faults events tcp fuzz]``. Emulated base, relay
and the torque loop are processes and threads of this computer; the base runs in real time, without patience, but for
events and TCP. The arm of the fault campaign moves to and fro; a campaign is survived if nothing crashed, the arm never
left its position limits nor moved faster than 1.5 times its speed limit, and ended at rest, either still obeying or
held by its base. Events: see bench_fri.py. A bad TCP connection is survived if, besides, the user is told, the driver
ends within 9 s, and its base has the arm then, which went no further than 20 mrad meanwhile.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
from collections.abc import Callable, MutableSequence
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
from _network import (
    Child,
    RunningLoop,
    echo_row,
    fuzz_row,
    move,
    print_campaign,
    print_fuzz,
    processor_time,
    relay,
    run_parts,
    watch,
)
from _network_events import KILL, PATIENCE, Event, print_events
from _network_tcp import PATIENCE as TCP_PATIENCE
from _network_tcp import print_tcp
from _table import print_table

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.kinova_kortex.enums import (
    ArmState,
    DeviceType,
    FrameType,
    Function,
    ServoingMode,
)
from sysid_ros.drivers.kinova_kortex.frame import (
    Frame,
    TcpFrames,
    decode_frame,
    encode_frame,
    message_class,
    parse,
    wrap_for_tcp,
)
from sysid_ros.drivers.kinova_kortex.messages import (
    Command,
    Feedback,
    decode_actuators,
    decode_arm_state,
    decode_command,
    decode_feedback,
    encode_command,
    encode_feedback,
)
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.kinova_kortex.tcp import error_of, session_request
from sysid_ros.drivers.network import InvalidFrame, free_port
from sysid_ros.drivers.registry import Driver, LoopSetup, build_loop
from sysid_ros.emulators.kortex.base import TCP, UDP, BaseSettings, KortexBase
from sysid_ros.emulators.kortex.server import EmulatorServer, build_base
from sysid_ros.emulators.plant import PERIOD
from sysid_ros.emulators.program import EmulatorSetup
from sysid_ros.emulators.relays.faults import NetworkFaults

MODEL = "kinova_gen3_2f85"


def emulate(pipe: Connection) -> None:
    """The emulated base, in a process of its own; says its ports first."""
    said = []
    base = build_base(EmulatorSetup(MODEL, payload="0.6"), report=said.append)
    server = EmulatorServer(base, tcp_delay=0.02)
    pipe.send((server.address[1], server.address_realtime[1]))
    faults = (text for text in said if text.startswith("faults: ") and text != "faults: none")
    watch(pipe, base.arm, server.cycle, lambda: len(list(faults)))


def running_loop(
    port: int, port_realtime: int, controller: str = "robust", attempts: int = 4, **settings: float
) -> RunningLoop:
    address = {"robot_ip": "127.0.0.1", "port": port, "port_realtime": port_realtime}
    kortex = KortexSettings(**address, connect_timeout=3.0, **settings)
    return RunningLoop(partial(build_loop, LoopSetup(MODEL, Driver.KORTEX, (kortex,), controller)), attempts)


def timing_row(controller: str, robot: RobotModel, seconds: float) -> list[object]:
    with Child(emulate) as emulated, running_loop(*emulated.pipe.recv(), controller) as process:
        time.sleep(0.5)
        cpu, base_cpu, started = processor_time(process.pid), processor_time(emulated.pid), time.monotonic()
        lost = move(process, robot, seconds)
        passed = time.monotonic() - started
        shares = [100.0 * (processor_time(p) - c) / passed for p, c in ((process.pid, cpu), (emulated.pid, base_cpu))]
        health, status = process.health(), process.status()
        jitter = 1e6 * np.abs(process.cycle_times(status.cycles)[1:, 0] - PERIOD)
        scheduling = process.scheduling
        process.stop()
        emulated.finish()
    trips = [1e6 * health[f"round trip {q} [s]"] for q in ("p50", "p99", "max")]
    counts = [status.missed_deadlines, health["replies missing"], lost]
    jitters = np.quantile(jitter, [0.5, 0.99, 1.0])
    return [
        f"Kortex 1 ms, {controller}",
        status.cycles,
        *trips,
        *jitters,
        *counts,
        *shares,
        scheduling.text.split(" (")[0],
    ]


def run_timing(robot: RobotModel, seconds: float) -> None:
    *baseline, share = echo_row(seconds, PERIOD)
    rows = [[*baseline, *["-"] * 6, share, "-", "normal"]]
    rows += [timing_row(controller, robot, seconds) for controller in ("gravity_pid", "robust")]
    columns = ["loop", "cycles", "round trip p50 [us]", "p99", "max", "period jitter p50 [us]", "p99", "max"]
    columns += ["missed deadlines", "replies missing", "arm lost", "CPU [%]", "CPU of the base [%]", "scheduling"]
    print_table(columns, rows, "From request to reply; a deadline is missed by half a period")


def fault_row(robot: RobotModel, seconds: float, name: str, faults: NetworkFaults) -> list[object]:
    with Child(emulate) as emulated:
        port, port_realtime = emulated.pipe.recv()
        with Child(relay, port_realtime) as between:
            with running_loop(port, between.pipe.recv()) as process:
                time.sleep(0.3)
                between.pipe.send(faults)
                lost = move(process, robot, seconds)
                health, is_alive, mode = process.health(), process.is_alive, process.status().mode
                process.stop()
            between.pipe.send(NetworkFaults())
            time.sleep(0.3)
            seen = emulated.finish()
    counted = [
        health[what]
        for what in ("replies missing", "replies late or repeated", "datagrams malformed", "readings not plausible")
    ]
    survived = "yes" if is_alive and seen.is_safe else "NO"
    return [name, *counted, lost, seen.ended, mode.name, seen.speed, survived]


def run_faults(robot: RobotModel, seconds: float) -> None:
    columns = ["fault, both directions", "replies missing", "late, repeated", "malformed", "not plausible", "arm lost"]
    columns += ["faults", "last mode", "largest speed / limit", "survived"]
    title = f"Fault campaign: {seconds:g} s each, moving to and fro; seen by the client"
    print_campaign(partial(fault_row, robot, seconds), columns, title)


class Strays:
    """Counts commands of a session that is not the present one: those that are refused, and those that act."""

    def __init__(self, base: KortexBase):
        self._base, self._answer = base, base.answer
        self._client: object = None
        self.refused = self.applied = 0
        base.answer = self.answer

    def answer(self, transport: str, client: object, data: bytes) -> bytes | None:
        answer = self._answer(transport, client, data)
        if transport == UDP and answer is not None:
            request, response = decode_frame(data), decode_frame(answer)
            if request.function == Function.CREATE_SESSION and not response.error:
                self._client = client
            elif request.function == Function.REFRESH:
                self.refused += bool(response.error)
                self.applied += not response.error and client != self._client
        return answer


def emulate_events(
    pipe: Connection, ports: tuple[int, int], posture: MutableSequence[float], is_successor: bool, **options: object
) -> None:
    """A base to which something happens, in a process of its own; begins when it is told to."""
    is_feedback_cut = bool(options.pop("feedback_of_6", False))
    base = build_base(EmulatorSetup(MODEL, payload="0.6"), BaseSettings(**options))
    strays = Strays(base)
    if is_feedback_cut:
        feedback = base._feedback
        base._feedback = lambda frame: feedback(frame)._replace(**dict.fromkeys(("q", "v", "tau"), np.zeros(6)))
    pipe.send("built")
    pipe.recv()
    if is_successor:
        base.arm.place(np.array(posture))
        base.restart()
    server = EmulatorServer(base, "127.0.0.1", *ports, patience=PATIENCE, tcp_delay=0.02)
    events = {
        "restart": lambda: (base.restart(), server.drop_connections()),
        "forget sessions": base.sessions.clear,
        "time out tcp": lambda: base.sessions.time_out(TCP),
        "time out udp": lambda: base.sessions.time_out(UDP),
        "leave low level": lambda: base.leave_low_level("joystick"),
        "press": base.press_emergency_stop,
        "release": lambda: base.press_emergency_stop(False),
    }
    watch(pipe, base.arm, server.cycle, lambda: 0, lambda: (strays.refused, strays.applied), events, posture)


EVENTS = (
    Event("base killed, started again after 0.5 s", KILL),
    Event("base killed, started again at once", KILL, pause=0.0),
    Event("base killed, one with 6 actuators in its place", KILL, successor={"joint_count": 6}, refusal="6 actuators"),
    Event("base started anew, connections dropped", "restart"),
    Event("sessions are not known any more", "forget sessions"),
    Event("TCP session ends by inactivity", "time out tcp"),
    Event("UDP session ends by inactivity", "time out udp"),
    Event("base leaves low-level servoing", "leave low level"),
    Event("emergency stop", "press", "release"),
)
TAKEOVERS = (
    ("6 actuators", {"joint_count": 6}, "6 actuators"),
    ("8 actuators", {"joint_count": 8}, "8 actuators"),
    ("feedback of 6 actuators, 7 announced", {"feedback_of_6": True}, "6 actuators"),
)


def run_events(robot: RobotModel) -> None:
    ports = free_port(), free_port()
    print_events(
        lambda posture, is_successor, **options: Child(emulate_events, ports, posture, is_successor, **options),
        partial(running_loop, *ports, wait_time=0.06, late_limit=0.2),
        robot, EVENTS, TAKEOVERS, "Kortex, 1 ms",
    )  # fmt: skip


def emulate_waiting(pipe: Connection) -> None:
    """A base whose time waits for the loop, in a process of its own; says its ports first."""
    base = build_base(EmulatorSetup(MODEL, payload="0.6"))
    server = EmulatorServer(base, patience=TCP_PATIENCE, tcp_delay=0.005)
    pipe.send((server.address[1], server.address_realtime[1]))
    watch(pipe, base.arm, server.cycle, lambda: int(base.servoing is not ServoingMode.SINGLE_LEVEL))


def run_tcp(robot: RobotModel) -> None:
    patience = {"wait_time": 0.25, "late_limit": 0.5, "session_timeout": 0.6}
    loop = partial(running_loop, attempts=1, **patience)
    print_tcp(partial(Child, emulate_waiting), loop, robot)


def reply_of(function: Function, name: str, **values: object) -> Frame:
    payload = message_class(name)(**values).SerializeToString()
    return Frame(FrameType.RESPONSE, function, 5, 6, 0, payload)


def in_frame(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    return lambda data: read(decode_frame(data).payload)


def read_stream(data: bytes) -> list[Frame]:
    """A stream that comes in two pieces."""
    cutter = TcpFrames()
    return [decode_frame(one) for piece in (data[:20], data[20:]) for one in cutter.feed(piece)]


def address(data: bytes) -> list[bytes]:
    """The requests that would be sent to the devices of a list."""
    frame = Frame(FrameType.REQUEST, Function.SET_CONTROL_MODE, 5, 6)
    return [encode_frame(frame._replace(device=one)) for one in decode_actuators(data)]


def run_fuzz(count: int) -> None:
    q = np.linspace(1.0, 300.0, 7)
    request = Frame(FrameType.REQUEST, Function.REFRESH, 5, 6, 0, encode_command(Command(9, q, q / 10.0)))
    ids = (9,) * 7
    state = Feedback(9, ArmState.SERVOING_LOW_LEVEL, q, q / 100.0, q / 10.0, ids, ids, ids, 0, ids)
    reply = request._replace(kind=FrameType.RESPONSE, payload=encode_feedback(state))
    handles = [{"device_type": DeviceType.BIG_ACTUATOR, "device_identifier": k, "order": k} for k in range(1, 8)]
    devices = reply_of(Function.READ_ALL_DEVICES, "DeviceHandles", device_handle=handles)
    arm_state = reply_of(Function.GET_ARM_STATE, "ArmStateInformation", active_state=ArmState.SERVOING_READY)
    number = reply_of(Function.GET_ACTUATOR_COUNT, "ActuatorInformation", count=7)
    error = reply_of(Function.REFRESH, "Error", error_code=3, error_sub_code=75, error_sub_string=b"wrong mode")
    error = error._replace(error=3, sub_error=75)
    session = request._replace(function=Function.CREATE_SESSION, payload=session_request(KortexSettings()))
    stream = b"".join(wrap_for_tcp(encode_frame(frame)) for frame in (devices, error))
    rows = [
        fuzz_row(what, data if isinstance(data, bytes) else encode_frame(data), decode, InvalidFrame, count)
        for what, decode, data in (
            ("frame", decode_frame, request),
            ("command in a frame", in_frame(partial(decode_command, n=7)), request),
            ("feedback in a frame", in_frame(partial(decode_feedback, n=7)), reply),
            ("TCP stream of two frames", read_stream, stream),
            ("devices in a frame", in_frame(address), devices),
            ("arm state in a frame", in_frame(decode_arm_state), arm_state),
            ("number of actuators in a frame", in_frame(partial(parse, "ActuatorInformation")), number),
            ("error in a frame", lambda data: str(error_of("a call", decode_frame(data))), error),
            ("request for a session in a frame", in_frame(partial(parse, "CreateSessionInfo")), session),
        )
    ]
    print_fuzz(rows)


if __name__ == "__main__":
    parts = {
        "timing": lambda robot, options: run_timing(robot, options.seconds),
        "faults": lambda robot, options: run_faults(robot, options.seconds),
        "events": lambda robot, _: run_events(robot),
        "tcp": lambda robot, _: run_tcp(robot),
        "fuzz": lambda _, options: run_fuzz(options.fuzz),
    }
    run_parts(__doc__, MODEL, parts)
