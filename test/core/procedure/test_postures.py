"""Weighing by slow motions through postures and back, with a scripted arm, and with a simulated one."""

from itertools import pairwise, product

import numpy as np
import pinocchio as pin
import pytest
from procedure_doubles import FixedPolicy, make_estimate
from test_identification import FakeBackend, fake_plan

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import build_controller
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.procedure import (
    EmptyHandPolicy,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    Ports,
    build_procedure,
    end_tare,
    run_identification,
)
from sysid_ros.core.procedure.postures import weighing_postures
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.emulators.lockstep import LockstepBackend


class PassingBackend(FakeBackend):
    """Goes where it is sent; certifies motions that ``allows`` allows, from start to end."""

    def __init__(self, here, allows=lambda start, end: True):
        super().__init__()
        self.here, self.tried, self.passed, self._allows = here, [], [], allows

    def posture(self):
        return self.here

    def latest(self):
        return make_estimate(0.5)

    def certify(self, trajectory, model):
        self._do("certify")
        self.tried.append(trajectory.end)
        assert np.array_equal(trajectory.start, self.here) and not np.any(trajectory.evaluate(0.0)[1])
        if not self._allows(trajectory.start, trajectory.end):
            raise IdentificationFailed(IdentificationErrorCode.CERTIFICATE_REFUSED, "joint_2 is weak")
        return fake_plan(trajectory, "certificate")

    def execute(self, plan, model=None):
        super().execute(plan, model)
        self.here = plan.trajectory.end
        self.passed.append(plan)


def weigh(backend, robot, **settings):
    policy = FixedPolicy()
    policy.robot = robot
    wanted = IdentificationSettings(strategy="postures", weighing_time=0.0, **settings)
    return run_identification(Ports(backend, backend, backend), policy, wanted)


def test_postures_are_passed_slowly_there_and_back(robot):
    backend = PassingBackend(robot.home)
    found = weigh(backend, robot, max_motion_time=18.0, trajectories=6)
    ends = [plan.trajectory.end for plan in backend.passed]
    np.testing.assert_allclose(ends, [*weighing_postures(robot, 3)[0], ends[1], ends[0], robot.home], atol=1e-12)
    assert [plan.duration for plan in backend.passed] == [3.0] * 6 and found.motion_time == pytest.approx(18.0)
    assert found.stop_reason == "3 postures were passed there and back"


def test_what_cannot_be_certified_is_passed_in_part_or_left_out(robot):
    (first, second), (third, _), *_ = weighing_postures(robot, 2)
    part = robot.home + 0.6 * (first - robot.home)
    allowed = (part, third, robot.home)
    backend = PassingBackend(robot.home, lambda start, end: any(np.allclose(end, one) for one in allowed))
    weigh(backend, robot)
    ends = [plan.trajectory.end for plan in backend.passed]
    np.testing.assert_allclose(ends, [part, third, part, robot.home])
    np.testing.assert_allclose(backend.tried[2:5], [part + share * (second - part) for share in (1.0, 0.6, 0.35)])


def test_where_nothing_can_be_certified_nothing_moves(robot):
    backend = PassingBackend(robot.home, lambda start, end: False)
    with pytest.raises(IdentificationFailed, match="joint_2 is weak"):
        weigh(backend, robot)
    assert not backend.passed and backend.calls[-1] == "brake"
    backend = PassingBackend(robot.home)
    backend._fail_at = "certify"  # a planner that is gone is asked once
    with pytest.raises(IdentificationFailed, match="certify failed"):
        weigh(backend, robot)
    assert len(backend.tried) == 0 and backend.calls.count("certify") == 1


@pytest.mark.parametrize("number", [1, 2, 5, 14])
def test_each_posture_takes_two_motions(number):
    with pytest.raises(ParameterOutOfRange, match=f"trajectories {number}: expected with postures twice their number"):
        IdentificationSettings(strategy="postures", trajectories=number)


def test_postures_show_a_weight_better_than_others_that_can_hold_it(robot):
    """Gravity from Pinocchio: joint torques of an object of 1 kg, which is moved by a centimetre."""
    model, data, body = robot.pin_model.copy(), robot.pin_model.createData(), robot.pin_model.inertias[robot.n]
    com, heaviest, sensors = robot.payload_prior.shape.com, robot.payload_prior.box.upper[0], robot.sensors

    def torque(q, mass, at):
        model.inertias[robot.n] = body + pin.Inertia(mass, at, np.zeros((3, 3)))
        return pin.computeGeneralizedGravity(model, data, q)

    def judge(postures):
        ways = [robot.home, *postures]
        ways += [0.5 * (one + other) for one, other in pairwise(ways)]
        rows, used = [], 0.0
        for q in ways:
            none = torque(q, 0.0, com.center)
            felt = [torque(q, 1.0, 0.01 * unit) - none for unit in (np.zeros(3), *np.eye(3))]
            error = sensors.effort_mean_error + sensors.effort_relative_error * np.abs(none)
            rows.append(np.column_stack([felt[0], *(each - felt[0] for each in felt[1:])]) / error[:, None])
            loads = [
                torque(q, heaviest, corner)
                for corner in map(np.array, product(*zip(com.lower, com.upper, strict=True)))
            ]
            used = max(used, np.max(np.abs(loads) / robot.limits.tau_continuous))
        return np.linalg.slogdet(np.vstack(rows).T @ np.vstack(rows))[1], used

    best, *others = weighing_postures(robot, 2)
    information, used = judge(best)
    assert np.all(best >= robot.limits.q_lower) and np.all(best <= robot.limits.q_upper) and used < 0.75
    held = [other for other, share in map(judge, others) if share < 0.75]
    assert len(held) > 5 and information > max(held)


@pytest.mark.slow
def test_a_simulated_arm_weighs_what_it_grasps_after_the_same_motions_with_the_empty_hand(robot):
    arm = MujocoArm(robot, settings=MujocoSettings(seed=3))
    loop = ControlLoop(arm, build_controller("robust", robot), robot)
    estimator = StreamingEstimator(robot)
    backend = LockstepBackend(loop, CertifiedPlanner(robot), estimator)
    settings, empty = IdentificationSettings(strategy="postures", max_motion_time=12.0), EmptyHandPolicy(robot)
    build_procedure(backend.ports, empty, settings).tare()
    end_tare(backend.ports, empty)
    assert 0.0 < estimator.tare.share < 1.0
    payload = load_payload(robot, "dumbbell_4lb")
    arm.set_payload(payload)
    found = run_identification(backend.ports, backend.make_policy(), settings)
    assert found.estimate.contains(payload) and len(found.plans) == 4
    assert np.abs(loop.status().reference - robot.home).max() < 1e-3
    assert found.estimate.radius[0] < 0.4, "without the tare it is 0.6 kg"
