"""Each term of the error budget against the worst errors of its own kind: the residual of the true parameters stays
inside the term, and is large enough for the test to mean something."""

import dataclasses

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, SHARED_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.windows.model import Window, WindowModel, tilt_axes
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.model.sampling import sample_parameters

DURATION, LENGTH = 1.2, 100


def residuals(robot, block, theta, payload, settings, extra=()):
    """Residual of the true parameters and every error term, per row, with the velocity errors at the ends added."""
    unknowns = describe_unknowns(robot, settings)
    model = WindowModel(robot, settings, unknowns)
    step = round(settings.window_duration / (block.seconds[-1] / (len(block) - 1)))
    beyond = 60 if settings.torque_lag or settings.torque_lag_tolerance else 0
    starts = range(0, len(block) - step - beyond, step)
    rows = Rows.stack([build_rows(model, Window(block, k, k + step, k // step)) for k in starts])
    prior = unknowns.prior
    problem = Problem.build(rows, prior.center, prior.radius, unknowns.radius, unknowns.end_error)
    delta = np.zeros(problem.b.shape[1])
    delta[: 14 * robot.n] = theta - unknowns.center
    for index, value in extra:
        delta[index] = value
    if rows.tilt.shape[1]:  # the products of the tilt with the target
        tilt = delta[16 * robot.n : 16 * robot.n + 3]
        delta[16 * robot.n + 3 :] = np.outer(tilt, payload - prior.center).ravel()
    residual = problem.y @ (payload - prior.center) + problem.b @ delta - problem.r
    terms = dict(zip(ERROR_TERMS, problem.errors.T, strict=True))
    for k, name in enumerate(SHARED_TERMS):
        terms[name] = terms[name] + np.abs(problem.ends).sum(axis=1) @ (problem.end_radius * (problem.end_term == k))
    return residual, terms


def check(residual, terms, names, at_least):
    allowed = sum(terms[name] for name in names)
    ratio = np.abs(residual) / allowed
    assert np.all(ratio <= 1.0), f"{names}: {ratio.max():.3f}"
    assert ratio.max() > at_least, f"{names} is {1 / ratio.max():.0f} times too wide"
    others = sum(value for name, value in terms.items() if name not in names)
    assert np.any(np.abs(residual) > others), f"without {names} the budget would still hold"


@pytest.fixture(scope="module")
def setup(robot, tools):
    perfect = tools.perfect_sensors(robot)
    theta = sample_parameters(robot, np.random.default_rng(0), corner=True)
    payload = 0.3 * robot.payload_prior.nominal + 0.7 * robot.payload_prior.box.center
    motion = tools.FourierMotion(robot, 3)
    return perfect, theta, payload, motion


def worst_share(residual, terms, *names):
    """No residual exceeds its terms; the largest share of them that one uses away from standstill."""
    allowed = sum(terms[name] for name in (*names, "quadrature", "coulomb", "rounding"))
    assert np.all(np.abs(residual) <= allowed)
    steady = terms["coulomb"] == 0.0
    return float(np.max(np.abs(residual[steady]) / allowed[steady]))


def flipping(motion, swing, period):
    """A motion whose acceleration flips between two samples by ``swing`` [rad/s^2], invisible to the samples."""

    def flipped(t):
        q, v, a = motion(t)
        phase = np.mod(np.asarray(t)[..., None] / period, 1.0)
        whole = np.floor(np.asarray(t)[..., None] / period + 1e-9)
        dv = swing * period * np.minimum(phase, 1.0 - phase)
        dq = swing * period**2 * (0.25 * whole + np.where(phase < 0.5, 0.5 * phase**2, 0.25 - 0.5 * (1 - phase) ** 2))
        return q + dq, v + dv, a + swing * np.where(phase < 0.5, 1.0, -1.0)

    return flipped


def test_perfect_data_leave_only_the_quadrature_error(setup, tools):
    robot, theta, payload, motion = setup
    block = tools.record(robot, theta, payload, motion, DURATION)
    residual, terms = residuals(robot, block, theta, payload, EstimatorSettings())
    worst_share(residual, terms)
    assert np.max(np.abs(residual[terms["coulomb"] == 0.0])) < 1e-5
    coarse = tools.record(robot, theta, payload, motion, DURATION, rate=100.0)
    worst_share(*residuals(robot, coarse, theta, payload, EstimatorSettings(window_duration=0.2)))


def test_rounding_is_all_that_is_left_at_rest(setup, tools):
    robot, theta, payload, motion = setup
    still = lambda t: tuple(np.broadcast_to(x, (*np.shape(t), 7)) for x in (motion.home, 0.0, 0.0))  # noqa: E731
    block = tools.record(robot, theta, payload, still, 0.5)
    residual, terms = residuals(robot, block, theta, payload, EstimatorSettings())
    assert np.all(np.abs(residual) <= terms["rounding"])
    assert np.all(terms["rounding"] < 1e-10)


def test_forward_euler(setup, tools):
    robot, theta, payload, motion = setup
    block = tools.record(robot, theta, payload, motion, DURATION)
    residual, terms = residuals(robot, block, theta, payload, EstimatorSettings(quadrature="forward_euler"))
    steady = terms["coulomb"] == 0.0
    check(residual[steady], {name: term[steady] for name, term in terms.items()}, ["quadrature"], 0.05)


@pytest.mark.parametrize("rate", [30.0, 50.0, 100.0, 1000.0])
def test_acceleration_jumps_between_samples(setup, tools, rate):
    """As large as the settings allow: at 1 kHz between two samples, at lower rates in every 15 ms begun."""
    robot, theta, payload, motion = setup
    settings, swings = EstimatorSettings(acceleration_change=0.05, acceleration_factor=1.0), np.ceil(1.0 / rate / 0.015)
    if rate == 1000.0:
        settings, swings = EstimatorSettings(derivative_spacing=0.01), 1.0
    period, count = 1.0 / rate, round(DURATION * rate)
    jumping = flipping(motion, 0.5 * swings * settings.acceleration_change * robot.limits.a_max, period)

    def at_samples(t):
        q, _, a = jumping(np.asarray(t) + 1e-12)
        return q, motion(t)[1], a

    block = tools.record(robot, theta, payload, at_samples, DURATION, rate=rate)
    model = tools.true_model(robot, theta, payload)
    # The armature's momentum and the rest of the rigid torque are integrated exactly by the Gauss points of half steps.
    torque = tools.mean_torque(robot, model, theta, jumping, np.arange(2 * count + 1) * period / 2)
    tau = np.concatenate([np.zeros((1, 7)), torque.reshape(-1, 2, 7).mean(axis=1)])
    residual, terms = residuals(robot, dataclasses.replace(block, tau=tau), theta, payload, settings)
    assert worst_share(residual, terms) > 0.005
    if rate == 1000.0:
        steady = terms["coulomb"] == 0.0
        check(residual[steady], {name: term[steady] for name, term in terms.items()}, ["quadrature"], 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("rate", [30.0, 50.0, 100.0])
def test_slow_samples_of_random_motions_stay_within_the_budget(robot, tools, rate, is_held):
    """Arms, payloads and motions drawn at random, without errors of the sensors to hide behind."""
    perfect = tools.with_sensors(tools.perfect_sensors(robot), effort_is_held=is_held)
    prior = robot.payload_prior
    rng = np.random.default_rng(int(rate) + is_held)
    worst = 0.0
    for trial in range(12):
        theta = sample_parameters(robot, rng, corner=bool(trial % 2))
        share = rng.uniform()
        payload = share * prior.nominal + (1.0 - share) * prior.box.center
        motion = tools.FourierMotion(robot, trial, rng.uniform(0.1, 0.6), rng.uniform(0.1, 0.35))
        block = tools.record(perfect, theta, payload, motion, 2.0, rate=rate)
        residual, terms = residuals(perfect, block, theta, payload, EstimatorSettings())
        allowed = sum(terms[name] for name in ("quadrature", "coulomb", "rounding", "torque_interpolation"))
        assert np.all(np.abs(residual) <= allowed), f"trial {trial}: {np.max(np.abs(residual) / allowed):.2f}"
        worst = max(worst, float(np.max(np.abs(residual) / allowed)))
    assert worst > 1e-3


@pytest.mark.parametrize("name", ["torque_relative", "torque_absolute"])
def test_torque_errors(setup, tools, name):
    robot, theta, payload, motion = setup
    block = tools.record(robot, theta, payload, motion, DURATION)
    rng = np.random.default_rng(1)
    sign = rng.choice([-1.0, 1.0], (len(block) // LENGTH + 1, 7)).repeat(LENGTH, axis=0)[: len(block)]
    if name == "torque_relative":
        noisy = tools.with_sensors(robot, effort_relative_error=0.025)
        tau = block.tau * (1.0 + 0.025 * sign)
    else:
        noisy = tools.with_sensors(robot, effort_absolute_error=0.02)
        tau = block.tau + 0.02 * sign
    residual, terms = residuals(noisy, dataclasses.replace(block, tau=tau), theta, payload, EstimatorSettings())
    steady = terms["coulomb"] == 0.0
    check(residual[steady], {key: term[steady] for key, term in terms.items()}, [name, "quadrature"], 0.5)


@pytest.mark.slow
def test_encoder_errors_of_the_worst_sign(setup, tools):
    robot, theta, payload, motion = setup
    noisy = tools.with_sensors(robot, position_resolution=2e-3)
    block = tools.record(robot, theta, payload, motion, DURATION)
    rng, shares = np.random.default_rng(2), []
    for trial in range(12):
        sign = rng.choice([-1.0, 1.0], 7) * np.ones((len(block), 1))
        if trial % 2:
            sign[LENGTH::LENGTH] *= -1.0
        moved = dataclasses.replace(block, q=block.q + 1e-3 * sign)
        shares.append(worst_share(*residuals(noisy, moved, theta, payload, EstimatorSettings()), "encoder"))
    assert max(shares) > 0.2


def test_velocity_errors_of_the_worst_sign(setup, tools):
    robot, theta, payload, motion = setup
    noisy, settings = tools.with_sensors(robot, velocity_error=0.01), EstimatorSettings(acceleration_factor=20.0)
    block = tools.record(robot, theta, payload, motion, DURATION)
    rng, shares = np.random.default_rng(3), []
    for trial in range(12):
        sign = rng.choice([-1.0, 1.0], 7) * np.ones((len(block), 1))
        if trial % 2:
            sign[np.arange(len(block)) // LENGTH % 2 == 1] *= -1.0
        moved = dataclasses.replace(block, v=block.v + 0.01 * sign)
        shares.append(worst_share(*residuals(noisy, moved, theta, payload, settings), "velocity"))
    assert max(shares) > 0.2


def test_stamp_jitter(setup, tools):
    robot, theta, payload, motion = setup
    jitter = 2e-4
    noisy = tools.with_sensors(robot, stamp_jitter=jitter)
    rng, shares = np.random.default_rng(4), []
    for _ in range(10):
        shift = jitter * rng.choice([-1.0, 1.0], 1201)
        shift[0] = jitter
        block = tools.record(robot, theta, payload, motion, DURATION, true_times=np.arange(1201) * 1e-3 + shift)
        shares.append(worst_share(*residuals(noisy, block, theta, payload, EstimatorSettings()), "jitter"))
    assert max(shares) > 0.2


def test_coulomb_friction_near_standstill(setup, tools):
    """Joints that stop and hold: the friction torque is anything within F_c, here against the nominal direction."""
    robot, theta, payload, motion = setup
    block = tools.record(robot, theta, payload, motion, DURATION)
    settings = EstimatorSettings(stiction_speed=0.05)
    f_c = theta[70:].reshape(7, 4)[:, 0]
    slow = np.abs(block.v) < 0.05
    slow_step = slow & np.roll(slow, 1, axis=0)
    tau = block.tau - np.where(slow_step, (np.sign(block.v) + 1.0) * f_c, 0.0)  # friction -F_c instead of F_c sign(v)
    residual, terms = residuals(robot, dataclasses.replace(block, tau=tau), theta, payload, settings)
    check(residual, terms, ["coulomb", "quadrature"], 0.5)


def test_torque_sampled_at_the_stamps(setup, tools):
    robot, theta, payload, motion = setup
    sampled = tools.with_sensors(robot, effort_is_held=False)
    block = tools.record(sampled, theta, payload, motion, DURATION, rate=100.0)
    settings = EstimatorSettings(window_duration=0.2)
    residual, terms = residuals(sampled, block, theta, payload, settings)
    worst_share(residual, terms, "torque_interpolation")
    held = tools.with_sensors(robot, effort_is_held=True)
    wrong, _ = residuals(held, block, theta, payload, settings)  # samples that are not means, taken for means
    steady = terms["coulomb"] == 0.0
    assert np.abs(wrong[steady]).max() > 3 * np.abs(residual[steady]).max()


@pytest.mark.parametrize("lag", [0.0, 0.02])
def test_torque_lag_and_its_tolerance(setup, tools, lag):
    robot, theta, payload, motion = setup
    tolerance = 0.004
    settings = EstimatorSettings(torque_lag=lag, torque_lag_tolerance=tolerance)
    for sign in (-1.0, 1.0):
        delay = lag + sign * 0.99 * tolerance
        late = tools.record(robot, theta, payload, lambda t, delay=delay: motion(t - delay), DURATION)
        block = dataclasses.replace(tools.record(robot, theta, payload, motion, DURATION), tau=late.tau)
        extra = [(14 * 7 + joint, sign * 0.99 * tolerance) for joint in range(7)]
        residual, terms = residuals(robot, block, theta, payload, settings, extra)
        allowed = sum(terms[name] for name in ("torque_lag", "quadrature", "coulomb", "rounding"))
        assert np.all(np.abs(residual) <= allowed)
        unaware, _ = residuals(robot, block, theta, payload, settings)  # without the true lag in delta
        assert np.any(np.abs(unaware) > allowed)


def test_gravity_from_another_direction(setup, tools):
    robot, theta, payload, motion = setup
    settings = EstimatorSettings(gravity_cone=0.04)
    unknowns = describe_unknowns(robot, settings)
    axes = tilt_axes(robot)
    rng = np.random.default_rng(5)
    for _ in range(3):
        across = rng.normal(size=2) @ axes[:2]
        across /= np.linalg.norm(across)
        gravity = np.cos(0.04) * robot.gravity + np.sin(0.04) * np.linalg.norm(robot.gravity) * across
        block = tools.record(robot, theta, payload, motion, 0.5, gravity=gravity)
        extra = [(16 * 7 + k, axes[k] @ (gravity - robot.gravity)) for k in range(3)]
        assert all(abs(value) <= unknowns.radius[index] * (1 + 1e-9) for index, value in extra)
        residual, terms = residuals(robot, block, theta, payload, settings, extra)
        allowed = sum(terms[name] for name in ("gravity", "quadrature", "coulomb", "rounding"))
        assert np.all(np.abs(residual) <= allowed)
        unaware, terms = residuals(robot, block, theta, payload, EstimatorSettings())
        assert np.any(np.abs(unaware) > 5 * sum(terms.values()))


def test_link_side_torque_holds_no_friction(tools):

    robot = tools.perfect_sensors(load_textbook("kuka_lbr_med7"))
    theta = sample_parameters(robot, np.random.default_rng(1), corner=True)
    offset = theta[70:].reshape(7, 4)[:, 3].copy()
    motion = tools.FourierMotion(robot, 1)
    payload = robot.payload_prior.nominal
    block = tools.record(robot, theta, payload, motion, 0.5)
    shifted = dataclasses.replace(block, tau=block.tau + offset)  # the zero of the sensor is all that is left of beta
    residual, terms = residuals(robot, shifted, theta, payload, EstimatorSettings())
    assert np.all(np.abs(residual) <= terms["quadrature"] + terms["rounding"])
    assert np.all(terms["coulomb"] == 0.0)


def test_terms_can_be_switched_off(setup, tools):
    robot, theta, payload, motion = setup
    noisy = tools.with_sensors(robot, velocity_error=0.01, effort_relative_error=0.02)
    block = tools.record(noisy, theta, payload, motion, 0.3)
    kept = tuple(name for name in ERROR_TERMS if name not in ("velocity", "torque_relative"))
    unknowns = describe_unknowns(noisy, EstimatorSettings())
    rows = build_rows(WindowModel(noisy, EstimatorSettings(error_terms=kept), unknowns), Window(block, 0, 100, 0))
    is_velocity = np.repeat([name == "velocity" for name in SHARED_TERMS], robot.n)
    assert np.all(rows.ends[:, :, is_velocity] == 0.0) and np.any(rows.ends[:, :, ~is_velocity] != 0.0)
    for name in ("velocity", "torque_relative"):
        assert np.all(rows.errors[:, ERROR_TERMS.index(name)] == 0.0)
    assert np.all(rows.errors[:, ERROR_TERMS.index("quadrature")] > 0.0)


def test_axes_of_a_tilt_turn_with_the_base(robot):
    """A base that is turned in its URDF has the same gravity, and the same tilted gravity, in its own frame."""
    from sysid_ros.core.estimation.windows.model import tilted_regressors
    from sysid_ros.core.model.loader import load_robot_from_urdf

    text = robot.urdf
    turned = text.replace(
        '<child link="base_link"/>\n    <origin xyz="0 0 0" rpy="0 0 0"/>',
        '<child link="base_link"/>\n    <origin xyz="0 0 0" rpy="1.1 0.4 -0.3"/>',
    )
    assert turned != text
    names = {"joint_names": list(robot.joint_names)}
    frames = {"base": robot.base_frame, "flange": robot.flange_frame, "tool": robot.tool_frame}
    straight, mounted = (load_robot_from_urdf(one, settings={"frames": frames}, **names) for one in (text, turned))
    q = robot.home[None]
    for first, second in zip(tilted_regressors(straight), tilted_regressors(mounted), strict=True):
        one, other = (regressor.integrate(q, 0.0 * q, np.ones(1)) for regressor in (first, second))
        np.testing.assert_allclose(one, other, atol=1e-9)
