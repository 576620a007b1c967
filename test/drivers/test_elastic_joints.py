"""Elastic joints of simulated arms, against an integrator and a model of the dynamics of our own."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from scipy.integrate import solve_ivp
from textbook import load_textbook
from true_arm import true_model

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.control import build_controller
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns, unseen_friction
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.errors import integrate_torque, position_integral
from sysid_ros.core.estimation.windows.model import quadrature_weights
from sysid_ros.core.estimation.windows.rows import build_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import RowStream
from sysid_ros.core.model.robot import EffortMeaning, PositionSide
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.procedure import IdentificationSettings, run_identification
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.mujoco.physics import ArmPhysics
from sysid_ros.drivers.mujoco.simulation import draw_truth, load_payload
from sysid_ros.emulators.lockstep import LockstepBackend, LockstepSettings
from sysid_ros.emulators.plant import EmulatedArm, PlantSettings

PATIENCE = 200.0
"""How long a plan may take on a busy machine [s]."""

NO_ERRORS = (
    *("effort_relative_error", "effort_gain_error", "effort_absolute_error", "effort_mean_error"),
    *("effort_integral_error", "position_resolution", "velocity_error"),
)
IDEAL = MujocoSettings(noise=Noise.NONE)


@pytest.fixture(scope="module")
def elastic():
    return load_textbook("kinova_gen3", is_elastic=True)


def changed(robot, **values):
    return replace(robot, elasticity=replace(robot.elasticity, **values))


def without_coulomb_friction(robot):
    theta = np.array(robot.theta_nominal)
    theta[70::4] = 0.0
    return theta


def torque_at(robot, t):
    return np.array([4.0, 3.0, 3.0, 3.0, 0.6, 0.5, 0.4]) * np.sin(9.0 * t + np.arange(robot.n))


def simulate_independently(robot, theta, start, seconds):
    """Links by Pinocchio's articulated-body algorithm, motors and springs by hand, an adaptive integrator."""
    model, elasticity, n = true_model(robot, theta), robot.elasticity, robot.n
    data = model.createData()
    _, viscous, armature, offset = robot.friction(theta).T
    gravity = pin.computeGeneralizedGravity(model, data, start).copy()
    k, d, active = elasticity.stiffness, elasticity.damping, elasticity.torque_damping * elasticity.stiffness

    def rate(t, state, held):
        q, motor, v, w, applied = state.reshape(5, n)
        torque = k * (motor - q) + d * (w - v)
        lag = np.zeros(n) if elasticity.actuator_lag == 0.0 else (held - applied) / elasticity.actuator_lag
        acting = (held if elasticity.actuator_lag == 0.0 else applied) - active * (w - v)
        acceleration = (acting - offset - viscous * w - torque) / armature
        return np.concatenate([v, w, pin.aba(model, data, q, v, torque), acceleration, lag])

    state = np.concatenate([start, start + gravity / k, np.zeros(2 * n), gravity + offset])
    for cycle in range(round(seconds / 1e-3)):
        held = gravity + offset + torque_at(robot, cycle * 1e-3)
        step = solve_ivp(rate, (0.0, 1e-3), state, args=(held,), method="DOP853", rtol=1e-9, atol=1e-11)
        state = step.y[:, -1]
    return state.reshape(5, n)


@pytest.mark.parametrize(("lag", "active", "tolerance"), [(0.0, 0.0, 2e-6), (0.003, 0.004, 2e-4)])
def test_motors_and_links_move_as_an_independent_integrator_says(elastic, lag, active, tolerance):
    robot = changed(elastic, actuator_lag=lag, torque_damping=np.full(7, active))
    theta, seconds = without_coulomb_friction(robot), 0.3
    physics = ArmPhysics(robot, theta, None, 1e-3)
    physics.place(robot.home)
    hold = physics.static_torque()
    for cycle in range(round(seconds / 1e-3)):
        physics.advance(hold + torque_at(robot, cycle * 1e-3))
    q, motor, v, w, _ = simulate_independently(robot, theta, robot.home, seconds)
    deflection, rate = physics.deflection
    assert np.abs(v).max() > 0.3 and np.abs(motor - q).max() > 2e-4  # it has moved
    # Between its steps the inner torque loop of the simulation holds its torque; that of the integrator does not.
    np.testing.assert_allclose(physics.q, q, atol=tolerance)
    np.testing.assert_allclose(physics.v, v, atol=30.0 * tolerance)
    np.testing.assert_allclose(deflection, motor - q, atol=tolerance)
    np.testing.assert_allclose(rate, w - v, atol=30.0 * tolerance)


def test_stiff_joints_move_as_rigid_ones(elastic):
    final = []
    for robot in (replace(elastic, elasticity=None), changed(elastic, stiffness=np.full(7, 3e5))):
        physics = ArmPhysics(robot, robot.theta_nominal, None, 1e-3)
        physics.place(robot.home)
        hold = physics.static_torque()
        for cycle in range(300):
            physics.advance(hold + 2.0 * torque_at(robot, cycle * 1e-3))
        final.append(physics.q)
    assert np.abs(final[0] - elastic.home).max() > 0.05
    np.testing.assert_allclose(final[1], final[0], atol=1e-3)


def test_a_link_side_sensor_measures_the_torque_of_the_spring(elastic):
    robot = replace(elastic, sensors=replace(elastic.sensors, effort_meaning=EffortMeaning.LINK_SIDE))
    arm = MujocoArm(robot, without_coulomb_friction(robot), settings=IDEAL)
    arm.connect()
    hold = arm.read().tau
    for cycle in range(200):
        before = np.sum(
            [robot.elasticity.stiffness, robot.elasticity.damping] * np.array(arm.physics.deflection), axis=0
        )
        arm.command(hold + torque_at(robot, cycle * 1e-3))
        measured = arm.read().tau
        after = np.sum(
            [robot.elasticity.stiffness, robot.elasticity.damping] * np.array(arm.physics.deflection), axis=0
        )
        assert np.all(np.abs(measured - 0.5 * (before + after)) < 0.05)  # curvature within a period


def test_positions_are_those_of_the_side_the_robot_file_names(elastic):
    for side in PositionSide:
        arm = MujocoArm(changed(elastic, position_side=side), settings=IDEAL)
        arm.connect()
        state = arm.read()
        deflection = arm.physics.deflection[0]
        assert np.abs(deflection).max() > 2e-4  # gravity
        expected = arm.truth().q + (deflection if side is PositionSide.MOTOR else 0.0)
        np.testing.assert_allclose(state.q, expected, atol=1e-12)
        np.testing.assert_allclose(arm.truth().q, elastic.home, atol=1e-9)


def ring(robot):
    """Largest speed of the deflection 0.1 s after a blow."""
    physics = ArmPhysics(robot, without_coulomb_friction(robot), None, 1e-3)
    physics.place(robot.home)
    hold, largest = physics.static_torque(), 0.0
    for cycle in range(130):
        physics.advance(hold, np.full(7, 3.0) if cycle < 5 else None)
        largest = max(largest, float(np.abs(physics.deflection[1][:4]).max())) if cycle > 100 else 0.0
    return largest


def test_the_inner_torque_loop_damps_oscillations(elastic):
    soft = changed(elastic, damping=np.full(7, 0.2))
    assert ring(changed(soft, torque_damping=np.full(7, 0.004))) < 0.2 * ring(soft)


def test_brakes_hold_the_motors_and_the_links_hang_on_their_springs(elastic):
    arm = MujocoArm(elastic, settings=IDEAL)
    arm.connect()
    arm.read()
    arm.inject(InjectedFaults(power_loss=True))
    motor = arm.physics.q + arm.physics.deflection[0]
    for _ in range(300):
        arm.physics.advance(np.zeros(7), is_powered=False)
    np.testing.assert_allclose(arm.physics.q + arm.physics.deflection[0], motor, atol=1e-5)
    np.testing.assert_allclose(arm.physics.q, elastic.home, atol=2e-4)


def test_the_true_stiffness_lies_where_the_settings_put_it(elastic):
    gravity = ArmPhysics(elastic, elastic.theta_nominal, None, 1e-3).dynamics.gravity(elastic.home)
    for share in (-1.0, 0.5):
        arm = EmulatedArm(elastic, elastic.theta_nominal, settings=PlantSettings(Noise.NONE, stiffness_share=share))
        stiffness = elastic.elasticity.stiffness * (1.0 + share * elastic.elasticity.stiffness_error)
        np.testing.assert_allclose(arm.q - elastic.home, gravity / stiffness, atol=1e-12)  # measured by the motors


@pytest.mark.parametrize("name", ["kinova_gen3", "kuka_lbr_iiwa14"])
def test_the_position_controller_of_an_emulated_arm_holds_it(name):
    robot = load_textbook(name, is_elastic=True)
    arm = EmulatedArm(robot, robot.theta_nominal, settings=PlantSettings(Noise.NONE))
    place = arm.q
    arm.advance(lambda q, v: arm.clip(arm.holding_torque(q, v, place + 0.02)), periods=1500)
    np.testing.assert_allclose(arm.q, place + 0.02, atol=4e-3)
    assert np.abs(arm.v).max() < 2e-3


@pytest.mark.slow
def test_a_payload_is_identified_with_elastic_joints(elastic):
    """Gains by the rule, certified plans, bounds of the errors and of the payload that hold."""
    theta, payload = draw_truth(elastic, "random", 4), load_payload(elastic, "0.5")
    arm = MujocoArm(elastic, theta, payload, settings=MujocoSettings(seed=4, stiffness_share=-1.0))
    loop = ControlLoop(arm, build_controller("robust", elastic), elastic)
    largest, rates = np.zeros(elastic.n), np.zeros(elastic.n)

    def note(sample):
        np.maximum(rates, np.abs(arm.physics.deflection[1]), out=rates)
        bound = loop.status().tracking_bound
        if sample is not None and loop.mode is LoopMode.TRACK and bound is not None:
            off = np.maximum(np.abs(sample.q_d - arm.truth().q), np.abs(sample.q_d - arm.physics.measured[0]))
            np.maximum(largest, off / bound, out=largest)

    backend = LockstepBackend(
        loop,
        CertifiedPlanner(elastic),
        StreamingEstimator(elastic),
        Scene(),
        LockstepSettings(time_limit=PATIENCE, first_time_limit=PATIENCE),
        note,
    )
    wanted = IdentificationSettings(trajectories=1, shrink_threshold=0.0, weighing_time=1.0)
    run_identification(backend.ports, backend.make_policy(), wanted)
    estimates = [one for _, one in backend.records.estimates]
    assert backend.records.executed and all(one.is_consistent for one in estimates)
    assert all(np.all((one.box.lower <= payload) & (payload <= one.box.upper)) for one in estimates)
    assert 0.0 < largest.max() < 1.0
    assert np.all(np.abs(arm.physics.deflection[0]) <= elastic.deflection)
    assert np.all(rates <= elastic.elasticity.deflection_rate) and rates.max() > 1e-3


@pytest.mark.parametrize("share", [-1.0, 1.0])
def test_gears_deflect_no_faster_than_the_estimator_counts_on(elastic, share):
    """With one number for all joints, the shoulder's 8.1 mrad/s exceeded 6 mrad/s at the upper end of the stiffness."""
    payload, rng, still = load_payload(elastic, "1.0"), np.random.default_rng(0), np.zeros(7)
    settings = MujocoSettings(seed=0, noise=Noise.ADVERSARIAL, stiffness_share=share)
    arm, controller = (
        MujocoArm(elastic, elastic.theta_nominal, payload, settings=settings),
        build_controller("robust", elastic),
    )
    arm.inject(InjectedFaults(command_delay=1))
    model = ControlModel.of_boxes(
        elastic, (elastic.theta_box, Box.around(payload, 0.1 * np.abs(payload) + 1e-3)), payload
    )
    controller.set_model(model.theta, model.theta_box, model.payload, model.payload_box)
    arm.connect()
    path = BezierTrajectory(elastic.home, still, still, elastic.home + rng.choice([-0.45, 0.45], 7), 1.5)
    offset, largest = arm.read().q - elastic.home, np.zeros(7)
    for cycle in range(1900):
        state, (q, v, a) = arm.read(), path.evaluate(min(max(cycle * 1e-3 - 0.2, 0.0), 1.5))
        torque = controller.compute(state.q, state.v, q + offset, v, a)
        arm.command(np.clip(torque, -elastic.limits.tau_max, elastic.limits.tau_max))
        np.maximum(largest, np.abs(arm.physics.deflection[1]), out=largest)
    share_used = largest / elastic.elasticity.deflection_rate
    assert share_used.max() <= 1.0 and share_used.max() > 0.1


@pytest.mark.parametrize("meaning", [EffortMeaning.GEAR_SIDE, EffortMeaning.MOTOR_SIDE, EffortMeaning.LINK_SIDE])
@pytest.mark.parametrize("share", [-1.0, 1.0])
@pytest.mark.parametrize("is_perfect", [False, True])
def test_rows_of_measured_motors_hold_for_the_true_links(elastic, is_perfect, share, meaning):
    """At either end of the stiffness, with the true errors of positions and velocities: mostly deflections."""
    robot, noise, n = replace(elastic, sensors=replace(elastic.sensors, effort_meaning=meaning)), Noise.ADVERSARIAL, 7
    theta = draw_truth(robot, "nominal" if is_perfect else "corner", 3).copy()
    if is_perfect:  # nothing but the stiffness is uncertain
        none = dict.fromkeys(NO_ERRORS, np.zeros(n)) | {"effort_meaning": meaning, "stamp_jitter": 0.0}
        if meaning.has_friction:  # an offset of the motors acts like their friction
            theta[10 * n + 3 :: 4] = 0.7 * np.array([1.0, -1.0, 1.0, -1.0, 0.5, -0.5, 0.5])
        robot, noise = replace(robot, sensors=replace(robot.sensors, **none), theta_box=Box(theta, theta)), Noise.NONE
    payload, still, period = load_payload(robot, "1.0"), np.zeros(n), 1e-3
    settings = MujocoSettings(seed=3, noise=noise, stiffness_share=share)
    arm, controller = MujocoArm(robot, theta, payload, settings=settings), build_controller("robust", elastic)
    arm.connect()
    path = BezierTrajectory(robot.home, still, still, robot.home + 0.3 * np.array([1, -1, 1, 1, -1, 1, 1]), 1.5)
    states, links = [], []
    for cycle in range(1700):
        state, (q, v, a) = arm.read(), path.evaluate(min(max(cycle * period - 0.1, 0.0), 1.5))
        states.append(state)
        links.append((arm.physics.q, arm.physics.v))
        torque = controller.compute(state.q, state.v, q, v, a)
        arm.command(np.clip(torque, -robot.limits.tau_max, robot.limits.tau_max))
    block = SampleBlock(
        np.array([one.stamp_ns for one in states]), np.arange(len(states)),
        *(np.array([getattr(one, name) for one in states]) for name in ("q", "v", "tau")),
    )  # fmt: skip
    true_q, true_v = np.swapaxes(links, 0, 1)
    settings, size = EstimatorSettings(), 14 * n
    unknowns = describe_unknowns(robot, settings)
    stream, known = RowStream(robot, settings, unknowns), []
    difference, gain = np.zeros(unknowns.radius.size), arm._sensors.gain_error
    difference[:size] = theta - unknowns.center
    difference[10 * n : size].reshape(n, 4)[:, unseen_friction(robot, settings)] = 0.0
    difference[15 * n : 16 * n] = -gain / (1.0 + gain)
    for window in stream.add(block)[0]:
        signals, rows = window.signals(stream.model), build_rows(stream.model, window)
        first = int(np.searchsorted(block.stamps, window.start_stamp))
        inside = slice(first, first + len(signals.times))
        off = np.concatenate([signals.v - true_v[inside], signals.q - true_q[inside]], axis=1)
        assert np.all(np.abs(off[:, n:]) <= signals.position_error)
        torque = integrate_torque(signals.torque_times, signals.tau, 0.0, signals.duration, stream.model.sensors)
        middle, radius = position_integral(stream.model, signals, torque, rows.errors)
        integral = quadrature_weights(signals.times, "trapezoid") @ off[:, n:]
        assert np.all(np.abs(integral - middle) <= radius)
        known.append(np.max(radius / (signals.duration * robot.deflection)))
        # A row, less what the errors at its ends do, is within its own bounds and those of the integrals.
        gains, unsure = rows.ends[..., :10] @ payload + rows.ends[..., 10], rows.ends[..., 11]
        rest = rows.y @ payload + rows.b @ difference - rows.u
        slack = rows.errors.sum(axis=1)
        slack += ((np.abs(gains) + unsure) * unknowns.end_error)[:, :, 2 * n :].sum(axis=(1, 2))
        for end, sample in ((0, off[0]), (1, off[-1])):
            rest -= (2 * end - 1) * gains[:, end, : 2 * n] @ sample
            slack += unsure[:, end, : 2 * n] @ np.abs(sample)

        assert np.all(np.abs(rest) <= slack)
    assert len(known) >= 3 and max(known) < 0.5
