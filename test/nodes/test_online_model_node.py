"""The driver under the control law with an online model: what it says of it, and motions without a certificate."""

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from node_bench import PATIENCE, Bench, DriverProbe, Trusting

from sysid_msgs.msg import CertifiedTrajectory, DriverStatus
from sysid_msgs.srv import ApplyEstimate
from sysid_ros.nodes.arm_driver import ArmDriverNode
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.plans import trajectory_to_message

PATIENT = ("heartbeat_timeout:=10.0", "late_limit:=10.0", "commander_timeout:=10.0")


@pytest.fixture(scope="module")
def bench():
    options = [word for one in (*PATIENT, "controller:=online_model") for word in ("-p", f"arm_driver:{one}")]
    bench = Bench(*options)
    bench.run_active(ArmDriverNode(Trusting))
    yield bench
    bench.close()


def test_a_simulated_arm_moves_and_its_model_is_fitted_beside_the_loop(bench, robot):
    driver = DriverProbe(bench, robot)
    told = bench.listen(DiagnosticArray, "arm_driver/online_model", qos.STATUS)

    def values(message):
        return {pair.key: pair.value for pair in message.status[0].values}

    def samples(message):
        return int(values(message)["samples"])

    first = told.wait().status[0]
    assert first.name == "arm_driver: online model"
    assert first.message == "the nominal model is used: nothing was measured in motion yet"
    plan = CertifiedTrajectory(trajectory=trajectory_to_message(driver.move(distance=0.3), robot.joint_names))
    before = len(driver.status.messages)
    response = driver.send(plan)
    assert response.accepted and response.message.startswith("moving without a certificate: online_model has no proven")
    moving = driver.wait_for(DriverStatus.MODE_TRACK, after=before)
    assert not moving.plan_id and np.isinf(moving.tracking_bound).all()
    status = driver.wait_for_rest(0.02)
    assert status.code == DriverStatus.CODE_OK
    fitted = values(told.wait(lambda message: samples(message) >= 3))
    assert fitted["gate is open"] == "False" and fitted["capacity"] == "50"
    for name in robot.joint_names:
        assert float(fitted[f"R^2 of {name}"]) <= 1.0
        assert float(fitted[f"torque error at most, nominal, {name} [Nm]"]) > 0.0
    assert fitted["better for certain by the parameter boxes"] in ("True", "False")
    # Another nominal model: what was fitted from the last one does not count any more.
    bench.call(ApplyEstimate, "arm_driver/set_model", ApplyEstimate.Request())
    heard = len(told.messages)
    told.wait(lambda message: samples(message) == 0, PATIENCE, after=heard)
