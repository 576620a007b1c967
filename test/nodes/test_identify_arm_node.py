"""``~/identify_arm`` over real processes with a simulated arm: a calibration, a cancelled goal, a wrong load."""

import numpy as np
import pytest
from node_bench import PATIENCE, Bench, DriverProbe
from suite_bench import Goal, SuiteOfProcesses

from sysid_msgs.action import Identify, IdentifyArm
from sysid_msgs.msg import DriverStatus
from sysid_ros.core.certification.certificate import box_hash
from sysid_ros.core.model.loader import load_robot
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.runs import read_plans
from sysid_ros.ros.other_nodes import ServerProbe, wait_until

Feedback, Result = IdentifyArm.Feedback, IdentifyArm.Result
PARAMETERS = {
    "arm_driver": {
        "payload": "none", "truth": "corner", "seed": 3, "commander_timeout": 5.0, "heartbeat_timeout": 10.0,
        "late_limit": 10.0,
    },
    "identification": {
        "arm_search_time": 0.5, "arm_starts": 1,
    },
}  # fmt: skip
SHORT = {"serial_number": "K7", "motion_time": 4.0, "validation_time": 2.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("arm")


@pytest.fixture(scope="module")
def suite(folder):
    suite = SuiteOfProcesses(folder / "log", PARAMETERS)
    yield suite
    suite.stop()


@pytest.fixture(scope="module")
def bench(suite):
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def driver(bench, robot):
    probe = DriverProbe(bench, robot)
    probe.is_alive = False  # identification gives the signs of life
    return probe


@pytest.fixture(scope="module")
def send(bench, driver):
    client = bench.action_client(IdentifyArm, "identification/identify_arm")
    assert client.wait_for_server(2 * PATIENCE)
    assert wait_until(ServerProbe(client).is_answered, PATIENCE)
    return lambda **fields: Goal(bench, client, IdentifyArm.Goal(**SHORT | fields))


def test_a_weight_that_is_not_attached_is_found_before_anything_moves(send, driver):
    # First in the file: at the home posture the torques tell 2 kg from nothing, where others leave the arm perhaps not.
    goal = send(load_mass=2.0, load_mass_tolerance=0.01)
    result = goal.wait()
    assert (result.error_code, result.motion_time) == (Identify.Result.INCONSISTENT, 0.0), result.error_text
    assert "the hand does not hold the stated load (reference weight 2 kg +- 0.01 kg)" in result.error_text
    assert driver.status.latest.mode == DriverStatus.MODE_HOLD


def test_cancelled_while_moving_the_arm_rests_and_the_recording_is_kept(send, driver, robot, folder):
    goal = send(results_directory=str(folder / "cancelled"), motion_time=6.0)
    goal.wait_for_phase(Feedback.PHASE_MOVING)
    driver.wait_for(DriverStatus.MODE_TRACK)
    goal.cancel()
    result = goal.wait()
    assert result.error_code == Identify.Result.CANCELED and 0.0 < result.motion_time < 6.0
    status = driver.wait_for_rest()
    assert status.code == DriverStatus.CODE_BRAKE_REQUESTED
    path = folder / "cancelled" / "recording.mcap"
    assert f"The recording is in {path}" in result.error_text
    recording = read_recording(path, robot)
    assert recording.metadata["serial"] == "K7" and len(recording.samples) > 500
    assert not (folder / "cancelled" / "arm.yaml").exists()


def test_a_goal_calibrates_the_arm(send, driver, robot, folder):
    goal = send(results_directory=str(folder / "out"))
    result = goal.wait(10 * PATIENCE)  # it computes for half a minute, on a busy machine for minutes
    assert result.error_code == 0, result.error_text
    names = {getattr(Feedback, name): name[6:] for name in dir(Feedback) if name.startswith("PHASE_")}
    phases = [names[phase] for k, phase in enumerate(goal.phases) if k == 0 or phase != goal.phases[k - 1]]
    assert phases[:3] == ["WAITING", "ESTIMATING", "PLANNING"] and phases[-2:] == ["ESTIMATING", "REPORTING"]
    assert phases.count("MOVING") == 2
    progress = [feedback.progress for feedback in goal.feedback]
    assert progress == sorted(progress) and progress[0] == 0.0 and progress[-1] > 0.9
    assert 6.0 <= result.motion_time <= 6.0 * 1.8 + 0.1
    known = load_robot(folder / "out" / f"{robot.name}.yaml")
    assert known.calibration.record.serial == "K7"
    assert np.all(np.array(result.lower) <= result.values) and np.all(result.values <= np.array(result.upper))
    assert np.linalg.norm(result.residual_after) < 1.05 * np.linalg.norm(result.residual_before)
    plans = read_plans(folder / "out" / "recording.mcap")
    # Both motions are there, and the one that is planned again where time has passed.
    assert len(plans) >= 2 and all(plan.certificate.claims for plan in plans)
    # The hand may hold something else next: the controller has the prior again.
    status = driver.wait_for_rest()
    assert wait_until(
        lambda: driver.status.latest.model_box_hash == box_hash(robot.theta_box, robot.payload_prior.box), PATIENCE
    ), status.text
