"""How every node of this package runs: one executor, a clean end on Ctrl-C, clear errors, repeats, diagnostics."""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
import time
import weakref
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy._rclpy_pybind11 import RCLError
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.service import Service
from rclpy.signals import SignalHandlerOptions
from rclpy.task import Future
from rclpy.time import Time
from rclpy.timer import Timer
from rclpy.utilities import remove_ros_args
from std_msgs.msg import Header

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.ros.other_nodes import Waker, announce
from sysid_ros.ros.parameters import node_parser

T = TypeVar("T")

EXIT_REFUSED = 2
"""Exit status of a node that cannot start with its parameters or arguments."""

_SECURITY_VARIABLE = "ROS_SECURITY_ENABLE"
"""Where it is true, ROS 2 demands SROS2."""

_workers: weakref.WeakKeyDictionary[Node, weakref.WeakSet[threading.Thread]] = weakref.WeakKeyDictionary()
"""Threads of long work by node."""

_CLOCK_PATIENCE, _CLOCK_REMINDER = 2.0, 30.0
"""How long a node waits for /clock before it warns, and between two warnings [s]."""
_SPIN_SECONDS = 0.05
"""Polling period of a condition while a client spins [s]."""
_POLL_SECONDS = 0.1
"""Polling period of a condition while an ending node spins [s]."""
_LOOK_SECONDS = 1.0
"""How long an idle node waits before it checks its clock [s]."""


def spin_main(node_class: Callable[[], Node], argv: Sequence[str] | None = None) -> int:
    """Make the node of an executable, spin it until a request to stop, and end it cleanly.

    A node may have a method ``close()``, called once before it is destroyed and while ROS still works: the place to
    stop an arm. A lifecycle node with a parameter ``autostart`` that is true is configured and activated at once.

    Args:
        node_class: The node's class, called without arguments.
        argv: Arguments, for ROS as well; the command line by default.

    Returns:
        Exit status: 0 after a stop on request, 2 if the node cannot start with its arguments.

    Raises:
        SystemExit: Of ``--help``, and of words that are neither this nor arguments of ROS.
    """
    arguments = list(sys.argv if argv is None else argv)
    node_parser(node_class, Path(arguments[0]).stem).parse_args(remove_ros_args(arguments)[1:])
    with Interrupts() as stop:
        try:
            rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
            status, node = _run(node_class, stop)
        except RCLError as error:
            if os.environ.get(_SECURITY_VARIABLE, "").lower() != "true":
                raise
            name = getattr(node_class, "__name__", "node")
            rclpy.logging.get_logger(name).fatal(f"cannot start with SROS2 ({_SECURITY_VARIABLE} is true): {error}")
            status, node = EXIT_REFUSED, None
        finally:
            rclpy.try_shutdown()
    if node is not None and any(thread.is_alive() for thread in _workers.get(node, ())):
        # Tearing the interpreter down would end a solver in the middle of its C++ code, which aborts the process.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _run(node_class: Callable[[], Node], stop: Interrupts) -> tuple[int, Node | None]:
    if stop.is_set:  # while its modules were loaded
        return 0, None
    try:
        node = node_class()
    except SysidError as error:
        name = getattr(node_class, "__name__", "node")
        rclpy.logging.get_logger(name).fatal(f"cannot start: {error}")
        return EXIT_REFUSED, None
    executor = SingleThreadedExecutor()
    waker = Waker(node, announce(node))
    try:
        executor.add_node(node)
        if isinstance(node, LifecycleNode) and not _autostart(node, stop):
            return EXIT_REFUSED, node
        # Objects made so far stay: collecting garbage among them again took a fifth of the time of a node at rest.
        gc.collect()
        gc.freeze()
        clock = ClockWatch(node)
        while not stop.is_set and rclpy.ok():
            executor.spin_once(timeout_sec=_LOOK_SECONDS)
            clock.look()
    except ExternalShutdownException:
        pass
    finally:
        waker.close()
        close = getattr(node, "close", None)
        if close is not None:
            close()
        executor.shutdown(timeout_sec=1.0)
        node.destroy_node()
    return 0, node


def _autostart(node: LifecycleNode, stop: Interrupts) -> bool:
    """Configure and activate a node whose parameter ``autostart`` is true, until a stop; false if it refuses."""
    if not (node.has_parameter("autostart") and node.get_parameter("autostart").value):
        return True
    for transition in (node.trigger_configure, node.trigger_activate):
        if not stop.is_set and transition() != TransitionCallbackReturn.SUCCESS:
            node.get_logger().fatal(f"cannot start: {transition.__name__.removeprefix('trigger_')} failed")
            return False
    return True


class ClockWatch:
    """Warns where a node waits for a clock that never comes: until then its stamps are zero."""

    def __init__(self, node: Node):
        self._node = node
        self._next = time.monotonic() + _CLOCK_PATIENCE
        self._is_waiting = node.has_parameter("use_sim_time") and bool(node.get_parameter("use_sim_time").value)

    def look(self) -> None:
        """Repeat the warning until there is a clock; called between turns of the executor."""
        if not self._is_waiting or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _CLOCK_REMINDER
        self._is_waiting = self._node.get_clock().now().nanoseconds == 0
        if self._is_waiting:
            publishers = len(self._node.get_publishers_info_by_topic("/clock"))
            self._node.get_logger().error(
                f"use_sim_time is true and no time has come on /clock ({publishers} publishers): stamps "
                "have no time, and joint states are not published, until it does. Start the simulator, or leave "
                "use_sim_time false: the simulated arms of this package need no clock"
            )


def create_timer(node: Node, period: float, callback: Callable[[], None]) -> Timer:
    """Call a function every ``period`` [s] by steady time.

    By default the timers of a node follow its clock, and stop while a simulation pauses or until a clock that was set
    back has caught up; heartbeats, samples and statuses must go on.
    """
    return node.create_timer(period, callback, clock=Clock(clock_type=ClockType.STEADY_TIME))


def create_long_service(node: Node, service_type: type, name: str, callback: Callable[..., Any]) -> Service:
    """Offer a service whose callback, ``async def callback(request, response)``, awaits long work.

    The node's default callback group runs one callback at a time, awaiting ones included: there, the awaiting callback
    would keep out every timer, subscription and answer it waits for. Here a second call comes in while the first one
    awaits, and the callback can refuse it.
    """
    return node.create_service(service_type, name, callback, callback_group=ReentrantCallbackGroup())


class Interfaces:
    """Interfaces that a node offers for some time: topics, services and timers, destroyed together.

    They are made as with the node itself, ``create_publisher(...)`` for instance; timers by :func:`create_timer` and
    long services by :func:`create_long_service`.
    """

    def __init__(self, node: Node):
        self._node = node
        self._made: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return what makes an interface and keeps it."""
        ours: dict[str, Any] = {"create_timer": create_timer, "create_long_service": create_long_service}
        own = ours.get(name)
        make = getattr(self._node, name) if own is None else partial(own, self._node)
        destroy = getattr(self._node, name.replace("create_", "destroy_").replace("long_", ""))

        def create(*words: Any, **options: Any) -> Any:
            made = make(*words, **options)
            self._made.append(partial(destroy, made))
            return made

        return create

    def destroy(self) -> None:
        """Destroy everything that was made, the last first; doing so twice is harmless."""
        while self._made:
            self._made.pop()()


def spin_until(executor: Executor, condition: Callable[[], bool], seconds: float) -> bool:
    """Spin an executor, which spins nowhere else, until a condition holds; return whether it does in time [s]."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= end:
            return False
        executor.spin_once(timeout_sec=_SPIN_SECONDS)
    return True


def spin_while(node: Node, condition: Callable[[], bool], seconds: float) -> None:
    """Spin a node that is about to end while a condition holds, for some time [s] at most: callbacks end in order."""
    end = time.monotonic() + seconds
    while condition() and node.executor is not None and time.monotonic() < end:
        node.executor.spin_once(timeout_sec=_POLL_SECONDS)


async def run_in_thread(node: Node, work: Callable[[], T]) -> T:
    """Run long work beside the executor and return its result.

    The executor goes on serving subscriptions, services and cancel requests meanwhile; the awaiting callback must
    belong to an action or to a service made with :func:`create_long_service`. An error of the work is raised
    where it is awaited.
    """
    return cast(T, await start_in_thread(node, work))


def start_in_thread(node: Node, work: Callable[[], T]) -> Future:
    """Start long work in a thread and return a future of its result, for the executor of a node."""
    future: Future = Future(executor=node.executor)

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            future.set_exception(error)

    thread = threading.Thread(target=run, name="work", daemon=True)
    _workers.setdefault(node, weakref.WeakSet()).add(thread)
    thread.start()
    return future


LongCallback = Callable[[Any, Any], Awaitable[Any]]
"""``async`` callback of a service: request and response to response."""


@dataclass
class _Answer:
    """The shared answer to requests of one content."""

    conditions: object  # State it depends on besides the request
    response: Future[Any] = field(default_factory=Future)  # The answer, maybe still to come
    ends: float = math.inf  # Steady time from which the same request is a new one [s]


def share_repeats(
    callback: LongCallback,
    conditions: Callable[[], object] = lambda: None,
    memory: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> LongCallback:
    """Let requests of the very same content share the work that the first of them has begun, and its answer.

    Args:
        callback: Does the work; its response says in ``success`` whether it did, where there is a ``memory``.
        conditions: State an answer depends on besides its request; once it has changed, the work is done anew.
        memory: For how long after a success the same answer is given again [s]: a repetition may be on its way still.
        clock: Steady time [s].

    Returns:
        The callback to offer; see :func:`sysid_ros.ros.node.create_long_service`.
    """
    answers: dict[object, _Answer] = {}

    async def answer(request: Any, response: Any) -> Any:
        for old in [key for key, one in answers.items() if one.ends <= clock()]:
            del answers[old]
        key, now = _content_of(request), conditions()
        known = answers.get(key)
        if known is not None and known.conditions == now:
            return await known.response
        own = answers[key] = _Answer(now)
        try:
            response = await callback(request, response)
        except Exception as error:
            own.ends = -math.inf
            own.response.set_exception(error)
            raise
        own.ends = clock() + memory if memory and response.success else -math.inf
        own.response.set_result(response)
        return response

    return answer


def _content_of(value: Any) -> object:
    """Return all that a message holds, to be compared: its serialization has padding, which may be anything."""
    if hasattr(value, "get_fields_and_field_types"):
        return tuple(_content_of(getattr(value, name)) for name in value.get_fields_and_field_types())
    if isinstance(value, np.ndarray | array):
        return value.tobytes()
    if isinstance(value, list | tuple):
        return tuple(map(_content_of, value))
    return repr(value) if isinstance(value, float) else value  # NaN is like NaN here


class Level(Enum):
    """How good or bad it is."""

    OK = DiagnosticStatus.OK
    WARN = DiagnosticStatus.WARN
    ERROR = DiagnosticStatus.ERROR
    STALE = DiagnosticStatus.STALE


def diagnostic_message(
    node: Node,
    part: str,
    robot: str,
    state: tuple[Level, str],
    values: Mapping[str, object],
    stamp_ns: int | None = None,
    address: str = "",
) -> DiagnosticArray:
    """Make one status of a part of a node for ``/diagnostics``, stamped now by default; units are in names of values.

    Two arms of one model differ in namespace, real ones in the address of their controller too.
    """
    texts = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in values.items()}
    arm = "/".join(filter(None, (node.get_namespace().strip("/"), robot)))
    status = DiagnosticStatus(
        level=state[0].value,
        name=f"{node.get_fully_qualified_name().strip('/')}: {part}",
        message=state[1],
        hardware_id=f"{arm}@{address}" if address else arm,
        values=[KeyValue(key=key, value=text) for key, text in texts.items()],
    )
    stamp = node.get_clock().now() if stamp_ns is None else Time(nanoseconds=stamp_ns)
    return DiagnosticArray(header=Header(stamp=stamp.to_msg()), status=[status])
