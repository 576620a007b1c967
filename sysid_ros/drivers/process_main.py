"""The other end of :class:`sysid_ros.drivers.process.LoopProcess`: the process that runs the control loop.

It ends on request, on SIGTERM, or when its parent is gone, and always brings the arm to rest first. SIGINT is ignored:
Ctrl-C in a terminal must let the parent stop the arm in its own order.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.admission import admit_trajectory
from sysid_ros.drivers.arm import SLOW, Pacing
from sysid_ros.drivers.channel import Channel, Outcome, SampleRing
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopModel, LoopRefusal
from sysid_ros.drivers.pacing import Pacer, SimulatedClock, request_scheduling

_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 5.0
_LATE = 0.5
"""Lateness in periods from which a cycle counts as a missed deadline."""
_SWITCH_INTERVAL = 5e-5
"""How long the thread that checks trajectories may keep the loop waiting [s]."""
_SIMULATED = ("set_payload", "inject", "truth")
_SIMULATED_CYCLES = 10
"""Cycles of a simulated arm that follow each other without a break: to wake up for each costs more than the cycle."""


class LoopServer:
    """Runs a connected control loop in real time and serves one parent."""

    def __init__(self, channel: Channel, ring: SampleRing, loop: ControlLoop):
        self._channel, self._ring, self._loop = channel, ring, loop
        self._parent = os.getppid()
        self._checker = ThreadPoolExecutor(1, "trajectory_check")
        self._pending: tuple[int, Future[Certificate], Trajectory, LoopModel | None] | None = None
        self._stop_reason: str | None = None
        self._stop_requests: list[int] = []
        self._stop_deadline = float("inf")
        self._is_simulated = loop.arm.is_simulated
        self._slow: list[str] = []
        self._clock = SimulatedClock(self._slow.append)

    def request_stop(self, reason: str) -> None:
        """Let :meth:`run` end as soon as the arm is at rest."""
        if self._stop_reason is None:
            self._stop_reason = reason
            self._stop_deadline = time.monotonic() + _STOP_TIMEOUT

    def run(self) -> None:
        """Run until a stop is requested; the arm is at rest and released afterwards."""
        loop, arm = self._loop, self._loop.arm
        is_batched = self._is_simulated and arm.pacing is Pacing.CLIENT
        cycles = _SIMULATED_CYCLES if is_batched else 1
        pacer = Pacer(cycles * arm.period, is_exact=not self._is_simulated)
        started_before = time.monotonic_ns()
        while (ending := self._end_reason()) is None:
            is_paced_by_arm = arm.pacing is Pacing.CONTROLLER and not loop.is_handed_back
            lateness = 0.0 if is_paced_by_arm else pacer.wait()
            if lateness > _LATE * arm.period and not self._is_simulated:  # whose time waits
                loop.report_late(lateness)
            started = time.monotonic_ns()
            period, begun = (started - started_before) // cycles, started
            for _ in range(cycles):
                sample = loop.step()
                ended = time.monotonic_ns()
                if sample is not None:
                    self._ring.write(sample, period, ended - begun)
                begun = ended
            started_before = started
            if self._is_simulated:
                self._clock.note(1e-9 * loop.now_ns)
            self._serve()
        loop.release(ending)
        self._checker.shutdown(wait=False, cancel_futures=True)
        for number in self._stop_requests:
            self._reply(number, Outcome.DONE, None)

    def _health(self) -> dict[str, object]:
        """Return the health of the arm; of a simulated one also the speed of its time."""
        health = self._loop.arm.health()
        if self._is_simulated:
            health["speed of simulated time [-]"] = round(self._clock.speed, 2)
        return {**health, SLOW: self._slow[0]} if self._slow else health

    def _end_reason(self) -> str | None:
        """Return why to end now; None without a request, or while the arm still brakes."""
        if self._stop_reason is None:
            return None
        self._loop.brake(self._stop_reason)
        may_end = self._loop.is_at_rest or time.monotonic() > self._stop_deadline
        return self._stop_reason if may_end else None

    def _serve(self) -> None:
        try:
            for number, name, arguments in self._channel.poll():
                self._handle(number, name, arguments)
            self._channel.flush()
        except EOFError:
            self.request_stop("the commanding process is gone")
        if os.getppid() != self._parent:
            self.request_stop("the commanding process has died")
        self._finish_check()

    def _handle(self, number: int | None, name: str, arguments: tuple[Any, ...]) -> None:
        if number is None:  # a heartbeat: no answer expected
            self._loop.heartbeat()
        elif name == "stop":
            self._stop_requests.append(number)
            self.request_stop(*arguments)
        elif name == "execute":
            self._start_check(number, *arguments)
        else:
            self._answer(number, name, lambda: self._perform(name, arguments))

    def _perform(self, name: str, arguments: tuple[Any, ...]) -> object:
        loop = self._loop
        if name in _SIMULATED:
            if not self._is_simulated:
                raise LoopRefusal(name, "the arm is not simulated")
            result = getattr(loop.arm, name)(*arguments)
            return loop.status().cycles if name == "set_payload" else result
        calls: dict[str, Callable[..., object]] = {
            "brake": loop.brake, "guide": loop.guide, "set_model": loop.set_model, "connect": loop.connect,
            "status": loop.status, "health": self._health, "model": lambda: loop.model,
            "follow_uncertified": loop.follow_uncertified, "offer_model": loop.offer_model,
        }  # fmt: skip
        return calls[name](*arguments)

    def _start_check(
        self, number: int, trajectory: Trajectory, certificate: Certificate | None, model: LoopModel | None
    ) -> None:
        if self._pending is not None or self._stop_reason is not None:
            reason = "another trajectory is being checked" if self._stop_reason is None else self._stop_reason
            self._reply(number, Outcome.REFUSED, ("trajectory", reason))
            return
        loop = self._loop
        work = self._checker.submit(
            admit_trajectory, loop.robot, trajectory, certificate, loop.boxes_of(model), loop.now_ns * 1e-9
        )
        self._pending = (number, work, trajectory, model)

    def _finish_check(self) -> None:
        if self._pending is None or not self._pending[1].done():
            return
        (number, work, trajectory, model), self._pending = self._pending, None

        def begin() -> float:
            certificate = work.result()
            if self._stop_reason is not None:
                raise LoopRefusal("trajectory", self._stop_reason)
            return self._loop.begin(trajectory, certificate, model)

        self._answer(number, "execute", begin)

    def _answer(self, number: int, name: str, action: Callable[[], object]) -> None:
        try:
            self._reply(number, Outcome.DONE, action())
        except LoopRefusal as refusal:
            self._reply(number, Outcome.REFUSED, (refusal.what, refusal.reason, refusal.code))
        except SysidError as error:
            self._reply(number, Outcome.REFUSED, (name, str(error)))
        except Exception as error:  # a fault in serving must not take the loop down with the arm
            self._reply(number, Outcome.FAILED, repr(error))

    def _reply(self, number: int, outcome: Outcome, content: object) -> None:
        try:
            self._channel.send((number, outcome, content))
        except EOFError:
            self.request_stop("the commanding process is gone")


def main() -> None:
    """Entry point: file descriptors of the socket and of the sample ring are the two arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    try:
        messages = channel.wait(_START_TIMEOUT)
    except EOFError:
        return
    (number, _, (build, n, capacity, is_real_time)), *_ = messages
    loop: Any = None  # of an arm of any kind, or one that only monitors
    try:
        ring = SampleRing(int(sys.argv[2]), n, capacity)
        os.close(int(sys.argv[2]))
        loop = pickle.loads(build)()
        if loop.arm.n != n:
            raise LoopRefusal("start", f"the arm has {loop.arm.n} joints, {n} were expected")
        server = LoopServer(channel, ring, loop)
        signal.signal(signal.SIGTERM, lambda *_: server.request_stop("SIGTERM"))
        sys.setswitchinterval(_SWITCH_INTERVAL)
        scheduling = request_scheduling(is_real_time)
        if loop.arm.is_simulated:
            loop.arm.start_clock(time.time_ns())
        loop.connect()
        channel.send((number, Outcome.DONE, scheduling))
        server.run()
    except Exception as error:
        if not isinstance(error, SysidError):
            traceback.print_exc()
        if loop is not None:
            loop.release(f"internal error: {error!r}")
        channel.send((number, Outcome.FAILED, repr(error) if not isinstance(error, SysidError) else str(error)))
        sys.exit(1)


if __name__ == "__main__":
    main()
