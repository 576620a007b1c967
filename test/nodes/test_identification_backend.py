"""What the backend over topics and services knows of time, with a clock, a driver and samples of the test."""

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from sysid_msgs.msg import CertifiedTrajectory, DriverStatus
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_ros.core.procedure import PlannedMotion, PlannedPart
from sysid_ros.core.procedure.receding import HAND_OVER_RESERVE
from sysid_ros.core.trajectories.bezier import BezierTrajectory
from sysid_ros.emulation.lockstep_identification import LockstepSettings
from sysid_ros.nodes import identification_backend
from sysid_ros.nodes.estimator import EstimatorParameters
from sysid_ros.nodes.identification_backend import FIRST_PLAN_TIME, TAKEOVER_RESERVE, RosBackend
from sysid_ros.nodes.identification_watch import Records
from sysid_ros.nodes.safe_planner import ANSWER_RESERVE


def make_part(robot, name, distance=0.1):
    still = np.zeros(robot.n)
    path = BezierTrajectory(robot.home, still, still, robot.home + distance, 3.0)
    certificate = SimpleNamespace(control=SimpleNamespace(after=name, rest_before=0.0), box_hash="")
    return PlannedPart(PlannedMotion(path, 10.0), certificate, 1.5, np.eye(10))


class Bench:
    """A backend whose parts are all accepted; the time of the arm is set by hand, apart from that of the clock."""

    def __init__(self, robot, monkeypatch):
        self.clock = 100.0
        status = DriverStatus(mode=DriverStatus.MODE_TRACK, code=DriverStatus.CODE_OK)
        self.watch = SimpleNamespace(
            records=Records(), status=status, status_time=self.clock, sample_time=self.clock, sample_stamp_ns=0,
            estimate_stamp_ns=0, estimate=None, followed=deque(),
        )  # fmt: skip
        clients = SimpleNamespace(execute=None)
        parameters = SimpleNamespace(service_timeout=1.0)
        monkeypatch.setattr(identification_backend, "time", SimpleNamespace(monotonic=lambda: self.clock))
        accepted = SimpleNamespace(accepted=True)
        monkeypatch.setattr(identification_backend, "call_service", lambda *arguments: accepted)
        self.backend = RosBackend(None, robot, self.watch, clients, parameters)

    def execute(self, part, before, stamp):
        self.watch.sample_stamp_ns = round(1e9 * stamp)
        self.backend._part_messages[part] = CertifiedTrajectory(), EstimateMessage()
        self.backend.execute_next(part, before)

    def hear(self, clock, part, done):
        """The driver says how much of a part is done [s]."""
        self.clock = self.watch.status_time = self.watch.sample_time = clock
        self.watch.status.plan_hash = part.motion.trajectory.hash()
        self.watch.status.progress = done / 3.0
        self.backend.motion_state()


@pytest.fixture
def bench(robot, monkeypatch):
    return Bench(robot, monkeypatch)


def test_time_until_a_takeover_is_that_of_the_arm(bench, robot):
    first, second = make_part(robot, ""), make_part(robot, "first", 0.2)
    backend = bench.backend
    assert backend.time_until_takeover(first) == FIRST_PLAN_TIME
    bench.execute(first, None, 50.0)
    bench.hear(100.6, first, 0.6)
    assert backend.time_until_takeover(first) == pytest.approx(0.9)
    bench.execute(second, first, 50.6)
    assert backend.time_until_takeover(second) == pytest.approx(2.4)
    bench.hear(101.6, first, 0.9)  # an emulated arm that waits: 0.3 s in a second
    assert backend.time_until_takeover(first) == pytest.approx(0.6)
    assert backend.time_until_takeover(second) == pytest.approx(2.1)
    bench.clock += 0.5  # since the last word of the driver
    assert backend.time_until_takeover(second) == pytest.approx(1.6)
    bench.hear(104.0, second, 0.3)
    assert backend.time_until_takeover(second) == pytest.approx(1.2)


def test_share_to_come_is_that_after_the_last_sample_of_the_latest_estimate(bench, robot):
    first, second = make_part(robot, ""), make_part(robot, "first")  # the same motion twice, as of an arm that rests
    assert first.motion.trajectory.hash() == second.motion.trajectory.hash()
    backend, watch = bench.backend, bench.watch
    assert backend.share_to_come(first) == 1.0
    bench.execute(first, None, 50.0)
    assert backend.share_to_come(first) == 1.0  # no estimate yet
    bench.clock += 0.6
    bench.execute(second, first, 50.6)
    for seen, shares in ((49.0, (1.0, 1.0)), (50.5, (2 / 3, 1.0)), (52.25, (0.0, 0.5)), (54.0, (0.0, 0.0))):
        watch.estimate_stamp_ns = round(1e9 * seen)
        assert [backend.share_to_come(part) for part in (first, second)] == pytest.approx(shares)
    bench.hear(100.7, first, 0.7)  # which of the two is followed cannot be told, so what was predicted stays
    assert backend.time_until_takeover(second) == pytest.approx(2.3)


def test_what_procedure_and_lock_step_assume_of_the_nodes():
    assert pytest.approx(TAKEOVER_RESERVE + ANSWER_RESERVE) == HAND_OVER_RESERVE
    assert LockstepSettings().estimate_period == 1.0 / EstimatorParameters().publish_rate
