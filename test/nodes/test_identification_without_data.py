"""An arm that somebody else moves, watched through samples that prove nothing: no goal and no call succeeds."""

import time

import numpy as np
import pytest
import yaml
from node_bench import Bench
from std_srvs.srv import Trigger
from suite_bench import GoalProbe

from sysid_msgs.action import Identify
from sysid_msgs.msg import DriverStatus, ParameterEstimate, SampleBatch
from sysid_msgs.srv import ApplyEstimate
from sysid_ros.nodes.estimator import EstimatorNode
from sysid_ros.nodes.identification import IdentificationNode
from sysid_ros.reports.torque_fit import predict_torque
from sysid_ros.ros import qos

pytestmark = pytest.mark.realtime
Result = Identify.Result
MOTION_TIME = 2.0


class WatchedArm:
    """Sends what an arm would send that swings a payload, at any rate, a batch ten times a second at most."""

    def __init__(self, bench, robot):
        self.period, self._robot, self._next, self._sequence = 1.0, robot, 0, 0
        node = bench.node
        self._status = node.create_publisher(DriverStatus, "arm_driver/status", qos.STATUS)
        self._samples = node.create_publisher(SampleBatch, "arm_driver/samples", qos.SAMPLES)
        self._service = node.create_service(ApplyEstimate, "arm_driver/set_model", self._accept)
        node.create_timer(0.1, self._publish)

    @staticmethod
    def _accept(_, response):
        response.success = True
        return response

    def _publish(self):
        self._status.publish(DriverStatus(mode=DriverStatus.MODE_HOLD, text="watching"))
        now = time.time_ns()
        self._next = max(self._next, now - 2 * 10**8)
        stamps = np.arange(self._next, now, round(1e9 * self.period))
        if not stamps.size:
            return
        self._next = int(stamps[-1]) + round(1e9 * self.period)
        angle = 1e-9 * (stamps % (2 * 10**9)) * np.pi  # one swing in two seconds
        q = self._robot.home + 0.2 * np.sin(angle)[:, None]
        v = 0.2 * np.pi * np.cos(angle)[:, None] * np.ones(7)
        a = -0.2 * np.pi**2 * np.sin(angle)[:, None] * np.ones(7)
        tau = predict_torque(self._robot, self._robot.payload_prior.nominal, q, v, a)
        columns = {"positions": q, "velocities": v, "efforts": tau, "reference_positions": q, "reference_velocities": v}
        columns |= {"reference_accelerations": a, "commanded_efforts": tau}
        batch = SampleBatch(
            joint_names=list(self._robot.joint_names),
            first_sequence=self._sequence,
            stamps=stamps.tolist(),
            valid=[True] * len(stamps),
            modes=[DriverStatus.MODE_HOLD] * len(stamps),
            **{name: values.ravel().tolist() for name, values in columns.items()},
        )
        self._sequence += len(stamps)
        self._samples.publish(batch)


@pytest.fixture(scope="module")
def bench():
    settings = ("identification:strategy:=observe", f"identification:max_motion_time:={MOTION_TIME}")
    # With what the shape of the object says slow samples would leave out that the hand is empty.
    bench = Bench(*(part for one in (*settings, "estimator:use_cone:=false") for part in ("-p", one)))
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def arm(bench, robot):
    arm = WatchedArm(bench, robot)
    bench.run(EstimatorNode())
    bench.run(IdentificationNode())
    return arm


@pytest.fixture(scope="module")
def goals(bench, arm):
    return GoalProbe(bench)


@pytest.mark.parametrize(
    ("period", "code", "status", "text"),
    [
        (0.08, Result.NO_WINDOWS, ParameterEstimate.NO_DATA, "a window takes steps of at most 0.05 s: sample faster"),
        (0.04, Result.NOT_IDENTIFIED, None, "between samples: sample faster"),
    ],
)
def test_a_goal_without_proof_is_aborted(arm, goals, tmp_path, period, code, status, text):
    arm.period = period
    result = goals.send(results_directory=str(tmp_path)).wait()
    assert result.error_code == code and text in result.error_text, result.error_text
    assert status is None or result.estimate.status == status
    assert not result.estimate.mass_is_narrower and result.estimate.status != ParameterEstimate.IDENTIFIED
    assert result.payload.m == 0.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["estimate.yaml", "recording.mcap", "report.html"]
    data = yaml.safe_load((tmp_path / "estimate.yaml").read_text())
    assert not data["is_usable"] and text in data["shortfall"] and "payload" not in data
    assert "No usable estimate" in (tmp_path / "report.html").read_text()


def test_a_call_without_proof_says_so(arm, bench):
    arm.period = 0.08
    response = bench.call(Trigger, "identification/identify_payload")
    assert not response.success and "no momentum window could be made" in response.message
    assert "sample faster" in response.message
