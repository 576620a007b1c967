"""The control loop as a process of its own, seen from the ROS side; it brakes and ends when this side dies.

Commands and replies go through a socket pair, samples through shared memory without a name.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Sequence

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.guiding import GuidingSettings, Wall
from sysid_ros.core.control.model_fitter import FittedModel
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.arm import Array, InjectedFaults, Truth
from sysid_ros.drivers.channel import LoopSamples, LoopTiming, SampleRing
from sysid_ros.drivers.child import ChildProcess, ChildProcessFailed
from sysid_ros.drivers.loop_types import LoopCode, LoopModel, LoopRefusal, LoopStatus
from sysid_ros.drivers.pacing import Scheduling

_CONNECT_TIMEOUT = 60.0
"""A real arm is measured and tested before it is taken over [s]."""
_STOP_TIMEOUT = 10.0
"""Longest time for braking and handing the arm back; the process is killed afterwards [s]."""


class LoopProcess(ChildProcess):
    """Starts, commands and stops a control loop in another process. Its methods may be called from several threads.

    Calls raise :class:`ChildProcessFailed` where the process was never started or does not answer.

    Args:
        build: Makes the loop (a :class:`ControlLoop`, or one that only monitors), in the other process; must be
            picklable (a module-level function or a ``partial``).
        n: Number of joints of the arm it makes.
        capacity: Samples kept for :meth:`read_samples`; 16 s at 1 kHz.
        is_real_time: Whether the loop requests real-time priority, see :func:`request_scheduling`.
    """

    name, module = "loop", "sysid_ros.drivers.process_main"

    def __init__(self, build: Callable[[], object], n: int, capacity: int = 16384, is_real_time: bool = False):
        super().__init__()
        self._build, self._n, self._capacity, self._is_real_time = build, n, capacity, is_real_time
        self._reading = threading.Lock()
        self._ring: SampleRing | None = None
        self.scheduling = Scheduling(False, "not started")

    def start(self, timeout: float = _CONNECT_TIMEOUT) -> None:
        """Start the process and take the arm over, within a timeout [s].

        Raises:
            ChildProcessFailed: It did not start, or the arm could not be taken over; says why.
        """
        if self.is_alive:
            raise ChildProcessFailed(self.name, "runs already")
        descriptor = SampleRing.allocate(self._n, self._capacity)
        try:
            self._ring = SampleRing(descriptor, self._n, self._capacity)
            self._spawn([descriptor])
        finally:
            os.close(descriptor)
        try:
            words = pickle.dumps(self._build), self._n, self._capacity, self._is_real_time
            self.scheduling = self._call("start", *words, timeout=timeout)
        except SysidError:
            self._end(kill_after=2.0)
            raise

    def execute(self, trajectory: Trajectory, certificate: Certificate | None, model: LoopModel | None = None) -> float:
        """See :meth:`ControlLoop.execute`. Returns when the arm has begun to move, or the trajectory waits its turn."""
        return self._call("execute", trajectory, certificate, model)

    def follow_uncertified(self, trajectory: Trajectory) -> None:
        """See :meth:`ControlLoop.follow_uncertified`. Returns when the arm has begun to move."""
        self._call("follow_uncertified", trajectory)

    def offer_model(self, model: FittedModel) -> bool:
        """See :meth:`ControlLoop.offer_model`."""
        return self._call("offer_model", model)

    def model(self) -> LoopModel:
        """Return the model that the controller uses."""
        return self._call("model")

    def brake(self, reason: str, code: LoopCode = LoopCode.BRAKE_REQUESTED) -> None:
        """See :meth:`ControlLoop.brake`. Returns when braking has begun."""
        self._call("brake", reason, code)

    def guide(self, settings: GuidingSettings | None = None, walls: Sequence[Wall] = ()) -> None:
        """See :meth:`ControlLoop.guide`."""
        self._call("guide", settings, walls)

    def set_model(self, model: LoopModel, is_reset: bool = False) -> None:
        """See :meth:`ControlLoop.set_model`."""
        self._call("set_model", model, is_reset)

    def heartbeat(self) -> None:
        """Send a heartbeat of the commanding side; due at least every ``heartbeat_timeout`` while moving."""
        with self._lock:
            self._send((None, "heartbeat", ()))

    def reconnect(self) -> None:
        """Take the arm over again after a fault; see :meth:`ControlLoop.connect`."""
        self._call("connect", timeout=_CONNECT_TIMEOUT)

    def status(self) -> LoopStatus:
        """Return the status of the loop."""
        return self._call("status")

    def health(self) -> dict[str, object]:
        """See :meth:`Arm.health`."""
        return self._call("health")

    @property
    def _started_ring(self) -> SampleRing:
        if self._ring is None:
            raise ChildProcessFailed(self.name, "was never started")
        return self._ring

    def read_samples(self) -> LoopSamples:
        """Return the samples since the last call. Works also after the process has ended."""
        with self._reading:
            return self._started_ring.read()

    def latest_stamp_ns(self) -> int:
        """Return the time of the last cycle by the arm's clock [ns]; 0 before the first."""
        return self._started_ring.latest_stamp_ns()

    def timing(self, cycles: int = 1000) -> LoopTiming:
        """How regularly the latest cycles ran."""
        return self._started_ring.timing(cycles)

    def cycle_times(self, cycles: int) -> Array:
        """Period and computing time of the latest cycles, oldest first, (at most ``cycles``, 2) [s]."""
        return self._started_ring.cycle_times(cycles)

    def set_payload(self, payload: Array | None) -> int:
        """See :meth:`MujocoArm.set_payload`; return the number of the last sample before the change.

        Raises:
            LoopRefusal: The arm is not simulated, or the payload is impossible.
        """
        return self._call("set_payload", payload)

    def inject(self, faults: InjectedFaults) -> None:
        """See :meth:`MujocoArm.inject`."""
        self._call("inject", faults)

    def truth(self) -> Truth:
        """See :meth:`MujocoArm.truth`."""
        return self._call("truth")

    def stop(self, reason: str = "shut down") -> None:
        """Brake, hand the arm back and end the process; do nothing where it has ended already."""
        if self._process is None:
            return
        try:
            self._call("stop", reason, timeout=_STOP_TIMEOUT)
        except (ChildProcessFailed, LoopRefusal):
            pass  # it has ended already, or is about to be ended below
        self._end(kill_after=_STOP_TIMEOUT)

    def __enter__(self) -> LoopProcess:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
