from dataclasses import replace

import mujoco
import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook
from true_arm import true_model

from sysid_ros.core.common.errors import ModelError, NotPhysicallyConsistent
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.drivers.mujoco.simulation import build_mujoco_model, set_inertial_parameters

STEP = 5e-4


def draw(robot, seed):
    rng = np.random.default_rng(seed)
    corner = bool(seed % 2)
    theta = sample_parameters(robot, rng, corner)
    return rng, theta, sample_payload(robot.payload_prior, rng, corner)


@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "kuka_lbr_med7"])
@pytest.mark.parametrize("seed", range(4))
def test_acceleration_obeys_the_equation_of_motion_of_pinocchio(name, seed):
    robot = load_textbook(name)
    rng, theta, payload = draw(robot, seed)
    model = build_mujoco_model(robot, theta, payload, STEP)
    reference = true_model(robot, theta, payload)
    data, pin_data = mujoco.MjData(model), reference.createData()
    coulomb, viscous, armature, offset = robot.friction(theta).T
    for _ in range(10):
        q = rng.uniform(-1.5, 1.5, robot.n)
        v = rng.uniform(0.05, 1.5, robot.n) * rng.choice([-1.0, 1.0], robot.n)
        wanted = rng.uniform(-10.0, 10.0, robot.n)
        tau = pin.rnea(reference, pin_data, q, v, wanted) + armature * wanted + viscous * v
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q, v, tau - offset
        mujoco.mj_forward(model, data)
        a = np.array(data.qacc)
        expected = pin.rnea(reference, pin_data, q, v, a) + armature * a + viscous * v + coulomb * np.sign(v) + offset
        np.testing.assert_allclose(expected, tau, atol=1e-8)


def test_a_wrong_friction_would_be_noticed(robot):
    _, theta, payload = draw(robot, 0)
    model = build_mujoco_model(robot, theta, payload, STEP)
    data = mujoco.MjData(model)
    data.qvel[:] = 0.5
    mujoco.mj_forward(model, data)
    before = np.array(data.qacc)
    model.dof_frictionloss[:] *= 1.001
    mujoco.mj_forward(model, data)
    assert np.abs(data.qacc - before).max() > 1e-5


def test_energy_is_conserved_without_friction(robot):
    theta = robot.theta_nominal.copy()
    robot.friction(theta)[:, [0, 1, 3]] = 0.0
    payload = robot.payload_prior.nominal
    armature = robot.friction(theta)[:, 2]
    free = replace(robot, limits=replace(robot.limits, q_lower=np.full(7, -np.inf), q_upper=np.full(7, np.inf)))
    model = build_mujoco_model(free, theta, payload, STEP)
    reference = true_model(robot, theta, payload)
    data, pin_data = mujoco.MjData(model), reference.createData()
    data.qpos[:], data.qvel[:] = robot.home, 0.3

    def energy():
        q, v = np.array(data.qpos), np.array(data.qvel)
        kinetic = pin.computeKineticEnergy(reference, pin_data, q, v) + 0.5 * armature @ v**2
        return kinetic + pin.computePotentialEnergy(reference, pin_data, q)

    start = energy()
    swings = []
    for _ in range(2000):
        mujoco.mj_step(model, data)
        swings.append(energy() - start)
    assert np.abs(data.qvel).max() > 1.0  # it falls, so there is something to conserve
    assert np.abs(swings).max() < 1e-7


def test_friction_is_exact_while_sliding_and_holds_while_sticking(robot):
    theta = robot.theta_nominal
    model = build_mujoco_model(robot, theta, None, STEP)
    data = mujoco.MjData(model)
    coulomb = robot.friction(theta)[:, 0]
    data.qpos[:] = robot.home
    for speed in (0.01, -0.01, 0.3):
        data.qvel[:] = speed
        data.qfrc_applied[:] = 0.0
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.qfrc_constraint, -np.sign(speed) * coulomb, rtol=1e-9)
    data.qvel[:] = 0.0
    gravity = pin.computeGeneralizedGravity(robot.pin_model, robot.pin_model.createData(), robot.home)
    data.qfrc_applied[:] = gravity + 0.9 * coulomb
    for _ in range(1000):
        mujoco.mj_step(model, data)
    assert np.abs(data.qvel).max() < 1e-5
    data.qfrc_applied[:] = gravity + 1.2 * coulomb
    for _ in range(200):
        mujoco.mj_step(model, data)
    assert np.abs(data.qvel).min() > 1e-4


def test_changing_the_payload_is_the_same_as_building_with_it(robot):
    rng, theta, payload = draw(robot, 2)
    changed = build_mujoco_model(robot, theta, None, STEP)
    built = build_mujoco_model(robot, theta, payload, STEP)
    q, v = rng.uniform(-1, 1, 7), rng.uniform(-1, 1, 7)
    accelerations = []
    for model in (changed, built):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = q, v
        if model is changed:
            set_inertial_parameters(model, robot, theta, payload)
        assert np.all(data.qpos == q) and np.all(data.qvel == v)
        mujoco.mj_forward(model, data)
        accelerations.append(np.array(data.qacc))
    np.testing.assert_allclose(*accelerations, rtol=1e-12)


def test_an_impossible_payload_is_refused_and_changes_nothing(robot):
    model = build_mujoco_model(robot, robot.theta_nominal, None, STEP)
    mass = model.body_mass.copy()
    impossible = robot.payload_prior.nominal.copy()
    impossible[4] = -1.0
    with pytest.raises(NotPhysicallyConsistent, match="body moved by joint_7"):
        set_inertial_parameters(model, robot, robot.theta_nominal, impossible)
    np.testing.assert_array_equal(model.body_mass, mass)


@pytest.mark.parametrize(
    ("joint", "parent", "message"),
    [(pin.JointModelPZ(), 1, "JointModelPZ; only revolute"), (pin.JointModelRZ(), 0, "only arms without branches")],
)
def test_other_joints_and_branches_are_refused(robot, joint, parent, message):
    model = pin.Model()
    for name, kind, origin in (("joint_1", pin.JointModelRX(), 0), ("joint_2", joint, parent)):
        body = model.addJoint(origin, kind, pin.SE3.Identity(), name)
        model.appendBodyToJoint(body, pin.Inertia.Random(), pin.SE3.Identity())
    limits = replace(robot.limits, **{name: getattr(robot.limits, name)[:2] for name in vars(robot.limits)})
    other = replace(robot, pin_model=model, joint_names=("joint_1", "joint_2"), limits=limits)
    with pytest.raises(ModelError, match=message):
        build_mujoco_model(other, np.concatenate([np.tile(robot.theta_nominal[:10], 2), np.zeros(8)]), None, STEP)
