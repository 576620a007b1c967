"""The fit of a whole arm: truth of a simulated arm found again, lost samples, friction that the data ask for."""

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.papers.baselines.friction import FrictionLaw, Ripple
from sysid_ros.papers.baselines.whole_arm import (
    Motion,
    WholeArmProblem,
    WholeArmSettings,
    compare_blocks,
    fit_whole_arm,
    needed_score,
    select_friction,
)

SETTINGS = WholeArmSettings()
LAG, TILT = 0.02, np.array([0.03, -0.02])
COULOMB, VISCOUS, OFFSET = 0.4, 0.3, 0.1


@pytest.fixture(scope="module")
def robot():
    return load_textbook("kuka_lbr_med7")


def record(robot, seed, seconds=10.0, noise=0.02, extra=None, lag=LAG):
    """Samples at 100 Hz of an arm on a tilted base whose torques come late."""
    rng = np.random.default_rng(seed)
    theta = sample_parameters(robot, np.random.default_rng(3), corner=True)
    omega = 2.0 * np.pi * rng.uniform(0.1, 0.4, (robot.n, 2))
    phase = rng.uniform(-np.pi, np.pi, (robot.n, 2))
    amplitude = rng.uniform(0.15, 0.3, (robot.n, 2))

    def motion(t):
        angle = np.multiply.outer(t, omega) + phase
        home = np.array(robot.home)
        q = home + (amplitude * np.sin(angle)).sum(-1)
        v = (amplitude * omega * np.cos(angle)).sum(-1)
        return q, v, -(amplitude * omega**2 * np.sin(angle)).sum(-1)

    model = robot.pin_model.copy()
    for body in range(1, robot.n + 1):
        model.inertias[body] = pin.Inertia.FromDynamicParameters(theta[robot.inertial_slice(body)])
    model.gravity = pin.Motion(9.81 * np.array([TILT[0], TILT[1], -np.sqrt(1.0 - TILT @ TILT)]), np.zeros(3))
    data = model.createData()
    t = 0.01 * np.arange(round(100 * seconds))
    q, v, a = motion(t - lag)
    tau = np.array([pin.rnea(model, data, *row) for row in zip(q, v, a, strict=True)])
    tau = tau + COULOMB * np.tanh(v / 0.01) + VISCOUS * v + OFFSET + noise * rng.normal(size=q.shape)
    if extra is not None:
        tau = tau + extra(q, v)
    q, v, _ = motion(t)
    return SampleBlock(np.round(1e9 * t).astype(np.int64), np.arange(len(t)), q, v, tau)


def rms(values):
    return np.sqrt(np.mean(values**2, axis=0))


@pytest.fixture(scope="module")
def fit(robot):
    return fit_whole_arm(robot, Motion.of(record(robot, 0), robot, SETTINGS), SETTINGS)


def test_another_motion_is_predicted_to_the_noise(robot, fit):
    motion = Motion.of(record(robot, 1), robot, SETTINGS)
    residual = rms(motion.tau - fit.predict(robot, motion))[:]
    nominal = WholeArmProblem(robot, motion, FrictionLaw())
    assert np.all(residual < 0.1)
    assert np.all(residual < 0.2 * rms(motion.tau - nominal.predict(nominal.start)))


def test_gravity_lag_and_friction_are_found(fit):
    assert fit.gravity[:2] / 9.81 == pytest.approx(TILT, abs=2e-3)
    assert np.linalg.norm(fit.gravity) == pytest.approx(9.81, rel=1e-3)
    assert fit.torque_lag[[1, 3]] == pytest.approx(LAG, abs=3e-3)
    assert fit.friction[:, 0] == pytest.approx(COULOMB, abs=0.06)
    assert fit.friction[:, 1] == pytest.approx(VISCOUS, abs=0.1)
    assert np.all(fit.noise < 0.04)


def test_derivatives_are_those_of_the_prediction(robot):
    motion = Motion.of(record(robot, 2, seconds=2.0), robot, SETTINGS)
    problem = WholeArmProblem(robot, motion, FrictionLaw(has_asymmetry=True))
    rng = np.random.default_rng(0)
    x = problem.start + 0.01 * rng.normal(size=problem.start.size)
    x[-robot.n :] = 0.0123
    jacobian, step = problem.linearise(x), 1e-5
    inner = slice(10, -10)
    for k in (*range(0, 70, 7), 70, 71, 72, 80):
        change = np.zeros(x.size)
        change[k] = step
        slope = (problem.predict(x + change) - problem.predict(x - change)) / (2.0 * step)
        assert jacobian[inner, :, k] == pytest.approx(slope[inner], abs=1e-6, rel=1e-6)
    change = np.zeros(x.size)
    change[-6] = 1e-3
    slope = (problem.predict(x + change) - problem.predict(x - change)) / 2e-3
    assert jacobian[inner, 1, -6] == pytest.approx(slope[inner, 1], abs=0.05 * np.abs(slope[:, 1]).max())


def test_encoder_steps_at_1_khz_cut_nothing_and_jumps_do(robot):
    t = 1e-3 * np.arange(4000)
    gen3 = load_textbook("kinova_gen3")
    step = gen3.sensors.position_resolution
    q = gen3.home + 0.4 * np.sin(np.multiply.outer(t, np.linspace(1.0, 2.0, gen3.n)))
    read = step * np.round(q / step)
    zeros = np.zeros_like(q)
    block = SampleBlock(np.round(1e9 * t).astype(np.int64), np.arange(len(t)), read, zeros, zeros)
    assert len(Motion.of(block, gen3, SETTINGS).pieces) == 1
    read = read + 4.0 * step * (t >= 2.0)[:, None]
    jumped = SampleBlock(block.stamps, block.sequence, read, zeros, zeros)
    assert len(Motion.of(jumped, gen3, SETTINGS).pieces) == 2


def test_lost_samples_cut_the_recording_and_spoil_nothing(robot, fit):
    """The stamps go on as if nothing had been lost, so only the jump of the positions shows it."""
    block = record(robot, 0)
    kept = np.delete(np.arange(len(block)), [200, 201, 202, 640, 641])
    count = len(kept)
    short = SampleBlock(block.stamps[:count], np.arange(count), block.q[kept], block.v[kept], block.tau[kept])
    motion = Motion.of(short, robot, SETTINGS)
    assert len(motion.pieces) >= 3 and "cut at" in motion.notices[0]
    again = fit_whole_arm(robot, motion, SETTINGS)
    assert np.all(again.noise < 2.0 * fit.noise)


@pytest.mark.slow
def test_the_simple_law_suffices_where_friction_is_simple(robot):
    law = FrictionLaw(has_load=True, has_asymmetry=True)
    motion = Motion.of(record(robot, 4, seconds=20.0), robot, SETTINGS)
    fit, tests = select_friction(robot, motion, law, SETTINGS)
    assert {test.name for test in tests} == {"load", "asymmetry"}
    assert not np.any(fit.terms[:, 3:])


def test_few_blocks_and_many_tests_choose_no_terms_by_chance():
    """Improvements that are noise: where 5 blocks tell the error of 42 means, some exceed two standard errors."""
    rng, blocks, joints, groups = np.random.default_rng(0), 5, 7, 6
    chosen = []
    for needed in (2.0, needed_score(2.0, blocks, joints * groups)):
        draws = rng.normal(size=(200, groups, blocks, joints))
        by_draw = [[compare_blocks("", 5.0 + gain, np.full_like(gain, 5.0), needed) for gain in draw] for draw in draws]
        chosen.append(np.mean([any(np.any(test.is_needed) for test in tests) for tests in by_draw]))
    assert chosen[0] > 0.5 and chosen[1] < 0.06
    assert needed_score(2.0, 1000, 1) == pytest.approx(2.0, abs=0.01)


@pytest.mark.slow
def test_a_ripple_is_found_in_the_joint_that_has_it(robot):
    def ripple(q, _):
        return np.eye(robot.n)[1] * 0.5 * np.sin(30.0 * q)

    law = FrictionLaw(ripples=(Ripple((30.0,) * robot.n),))
    motion = Motion.of(record(robot, 5, seconds=20.0, extra=ripple, lag=0.0), robot, SETTINGS)
    fit, (test,) = select_friction(robot, motion, law, SETTINGS)
    assert test.is_needed[1] and test.improvement[1] > 0.8
    assert np.hypot(*fit.friction[1, 3:]) == pytest.approx(0.5, abs=0.05)


def test_a_recording_that_is_too_short_is_refused(robot):
    with pytest.raises(SysidError, match="usable samples"):
        Motion.of(record(robot, 0, seconds=0.1), robot, SETTINGS)
    motion = Motion.of(record(robot, 0, seconds=2.0), robot, SETTINGS)
    with pytest.raises(SysidError, match="record for longer"):
        fit_whole_arm(robot, motion, SETTINGS)


def test_columns_of_the_friction_law():
    t = np.linspace(0.0, 1.0, 1001)
    q, v = np.stack([np.sin(t), 2.0 * t], 1), np.stack([np.cos(t), np.full(1001, 2.0)], 1)
    load = np.stack([t, -t], 1)
    law = FrictionLaw((0.1,), True, True, (Ripple((0.0, 10.0)), Ripple((0.0, 10.0), 5.0, 0.3)))
    columns = law.columns([slice(0, 1001)], t, q, v, load)
    assert columns.shape == (1001, 2, len(law.names)) and len(set(law.names)) == len(law.names)
    by_name = dict(zip(law.names, columns.transpose(2, 0, 1), strict=True))
    assert by_name["F_v"] == pytest.approx(v) and np.all(by_name["beta"] == 1.0)
    assert by_name["load"][:, 1] == pytest.approx(t) and by_name["asymmetry"] == pytest.approx(np.abs(v))
    assert not by_name["ripple_0_sin"][:, 0].any() and by_name["ripple_0_sin"][:, 1] == pytest.approx(np.sin(20.0 * t))
    # Driven by a sine for long enough, a resonance answers with the gain of its transfer function.
    omega, drive = 2.0 * np.pi * 5.0, 20.0
    gain = omega**2 / abs(omega**2 - drive**2 + 2j * 0.3 * omega * drive)
    assert np.abs(by_name["ripple_1_sin"][500:, 1]).max() == pytest.approx(gain, rel=0.02)
    assert np.abs(by_name["ripple_1_sin_rate"][500:, 1]).max() == pytest.approx(gain * drive / omega, rel=0.02)


def test_laws_that_make_no_sense_are_refused():
    with pytest.raises(ParameterOutOfRange, match="speeds"):
        FrictionLaw(stribeck_speeds=(0.0,))
    with pytest.raises(ParameterOutOfRange, match="ripple"):
        Ripple((1.0,), frequency=-1.0)
