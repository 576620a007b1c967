"""The control loop as a process of its own, seen from the ROS side.

Commands and replies go through a socket pair, samples through shared memory without a name. The loop keeps running when
this side is slow, and brakes and ends when it dies.
"""

from __future__ import annotations

import itertools
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.guiding import GuidingSettings, Wall
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.arm import Array, InjectedFaults, Truth
from sysid_ros.drivers.channel import Channel, ChannelClosed, LoopSamples, LoopTiming, Outcome, SampleRing
from sysid_ros.drivers.loop_types import LoopCode, LoopModel, LoopRefusal, LoopStatus
from sysid_ros.drivers.pacing import Scheduling

_REPLY_TIMEOUT = 5.0
_CONNECT_TIMEOUT = 60.0
"""A real arm is measured and tested before it is taken over."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class LoopProcessError(SysidError):
    """The process of the loop does not run or does not answer.

    Args:
        reason: What happened.
    """

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"the loop process {reason}")


class LoopProcess:
    """Starts, commands and stops a control loop in another process. Its methods may be called from several threads.

    Args:
        build: Makes the loop (a :class:`ControlLoop`, or one that only monitors), in the other process; must be
            picklable (a module-level function or a ``partial``).
        n: Number of joints of the arm it makes.
        capacity: Samples kept for :meth:`read_samples`; 16 s at 1 kHz.
    """

    def __init__(self, build: Callable[[], object], n: int, capacity: int = 16384):
        self._build = build
        self._n = n
        self._capacity = capacity
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._numbers = itertools.count()
        self._process: subprocess.Popen | None = None
        self._channel: Channel | None = None
        self._ring: SampleRing | None = None
        self.scheduling = Scheduling(False, "not started")

    def start(self, timeout: float = _CONNECT_TIMEOUT) -> None:
        """Start the process and take the arm over.

        Args:
            timeout: Longest time until the arm is held [s].

        Raises:
            LoopProcessError: It did not start, or the arm could not be taken over; says why.
        """
        if self.is_alive:
            raise LoopProcessError("runs already")
        ours, theirs = socket.socketpair()
        descriptor = SampleRing.allocate(self._n, self._capacity)
        try:
            self._ring = SampleRing(descriptor, self._n, self._capacity)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sysid_ros.drivers.process_main", str(theirs.fileno()), str(descriptor)],
                pass_fds=(theirs.fileno(), descriptor),
                env={**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1"), "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in our terminal is ours to handle
            )
        finally:
            theirs.close()
            os.close(descriptor)
        self._channel = Channel(ours)
        try:
            self.scheduling = self._call("start", pickle.dumps(self._build), self._n, self._capacity, timeout=timeout)
        except SysidError:
            self._end(kill_after=2.0)
            raise

    def execute(self, trajectory: Trajectory, certificate: Certificate | None, model: LoopModel | None = None) -> None:
        """See :meth:`ControlLoop.execute`. Returns when the arm has begun to move, or the trajectory waits its turn.

        Raises:
            LoopRefusal: It may not be executed.
            LoopProcessError: The process does not answer.
        """
        self._call("execute", trajectory, certificate, model)

    def brake(self, reason: str, code: LoopCode = LoopCode.BRAKE_REQUESTED) -> None:
        """See :meth:`ControlLoop.brake`. Returns when braking has begun."""
        self._call("brake", reason, code)

    def guide(self, settings: GuidingSettings | None = None, walls: Sequence[Wall] = ()) -> None:
        """See :meth:`ControlLoop.guide`.

        Raises:
            LoopRefusal: Guiding is not allowed, or the arm is not held undisturbed.
        """
        self._call("guide", settings, walls)

    def set_model(self, model: LoopModel, is_reset: bool = False) -> None:
        """See :meth:`ControlLoop.set_model`.

        Raises:
            LoopRefusal: The arm moves, or a box is not inside the one in use.
        """
        self._call("set_model", model, is_reset)

    def heartbeat(self) -> None:
        """Send a heartbeat of the commanding side; due at least every ``heartbeat_timeout`` while moving."""
        with self._lock:
            self._send((None, "heartbeat", ()))

    def reconnect(self) -> None:
        """Take the arm over again after a fault; see :meth:`ControlLoop.connect`.

        Raises:
            LoopRefusal: There is no fault, or it is not over, or the arm cannot be taken over.
        """
        self._call("connect", timeout=_CONNECT_TIMEOUT)

    def status(self) -> LoopStatus:
        """Return what the loop says of itself.

        Raises:
            LoopProcessError: The process does not answer.
        """
        return self._call("status")

    def health(self) -> dict[str, object]:
        """See :meth:`Arm.health`.

        Raises:
            LoopProcessError: The process does not answer.
        """
        return self._call("health")

    def read_samples(self) -> LoopSamples:
        """Return the samples since the last call. Works also after the process has ended.

        Raises:
            LoopProcessError: Never started.
        """
        if self._ring is None:
            raise LoopProcessError("was never started")
        with self._reading:
            return self._ring.read()

    def timing(self, cycles: int = 1000) -> LoopTiming:
        """How regularly the latest cycles ran.

        Raises:
            LoopProcessError: Never started.
        """
        if self._ring is None:
            raise LoopProcessError("was never started")
        return self._ring.timing(cycles)

    def cycle_times(self, cycles: int) -> Array:
        """Period and computing time of the latest cycles, oldest first, (at most ``cycles``, 2) [s].

        Raises:
            LoopProcessError: Never started.
        """
        if self._ring is None:
            raise LoopProcessError("was never started")
        return self._ring.cycle_times(cycles)

    def set_payload(self, payload: Array | None) -> int:
        """See :meth:`SimulatedArm.set_payload`.

        Returns:
            Sequence number of the last sample before the change; those after it belong to the new payload.

        Raises:
            LoopRefusal: The arm is not simulated, or the payload is impossible.
        """
        return self._call("set_payload", payload)

    def inject(self, faults: InjectedFaults) -> None:
        """See :meth:`SimulatedArm.inject`.

        Raises:
            LoopRefusal: The arm is not simulated, or a joint is unknown.
        """
        self._call("inject", faults)

    def truth(self) -> Truth:
        """See :meth:`SimulatedArm.truth`.

        Raises:
            LoopRefusal: The arm is not simulated.
        """
        return self._call("truth")

    def stop(self, reason: str = "shut down", timeout: float = 10.0) -> None:
        """Brakes, hands the arm back and ends the process. Does nothing where it has ended already.

        Args:
            reason: Why, for the log of the arm.
            timeout: Longest time for it [s]; the process is killed afterwards.
        """
        if self._process is None:
            return
        try:
            self._call("stop", reason, timeout=timeout)
        except (LoopProcessError, LoopRefusal):
            pass  # it has ended already, or is about to be ended below
        self._end(kill_after=timeout)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id; None before the start."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> LoopProcess:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _call(self, name: str, *arguments: object, timeout: float = _REPLY_TIMEOUT) -> Any:
        with self._lock:
            number = next(self._numbers)
            channel = self._send((number, name, arguments))
            reply = self._wait_for_reply(channel, number, name, time.monotonic() + timeout)
        outcome, content = reply
        if outcome is Outcome.REFUSED:
            raise LoopRefusal(*content)
        if outcome is Outcome.FAILED:
            raise LoopProcessError(f"failed in '{name}': {content}")
        return content

    def _send(self, message: object) -> Channel:
        if self._channel is None:
            raise LoopProcessError("is not running; call start() first")
        try:
            self._channel.send(message)
        except ChannelClosed as closed:
            raise self._ended() from closed
        return self._channel

    def _wait_for_reply(self, channel: Channel, number: int, name: str, deadline: float) -> tuple[Outcome, Any]:
        while (remaining := deadline - time.monotonic()) > 0.0:
            try:
                channel.flush()
                messages = channel.wait(min(remaining, 0.1))
            except ChannelClosed as closed:
                raise self._ended() from closed
            for reply_number, outcome, content in messages:
                if reply_number == number:
                    return outcome, content
        raise LoopProcessError(f"did not answer '{name}' in time")

    def _ended(self) -> LoopProcessError:
        if self._process is None:
            return LoopProcessError("was never started")
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return LoopProcessError("has closed its channel")
        return LoopProcessError(f"has ended with exit status {code}")

    def _end(self, kill_after: float) -> None:
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None
        if self._process is None:
            return
        try:
            self._process.wait(kill_after)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
