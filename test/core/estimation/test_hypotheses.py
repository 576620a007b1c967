"""Recordings in which exactly one assumption is broken: the broken one is found, with its size, and nothing else is."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.estimation.hypotheses import Assumption, explain_inconsistency
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock

SECONDS = 2.0
SETTINGS = EstimatorSettings(bound_tolerance=0.05)


@pytest.fixture(scope="module")
def motion(tools, robot):
    return tools.FourierMotion(robot, 5, amplitude=0.8)


@pytest.fixture(scope="module")
def record(tools, robot, motion, dumbbell):
    """Samples with sensor errors; what is broken is changed in the truth, or afterwards in the torques."""

    def of(theta=None, payload=dumbbell, gravity=None, break_torque=lambda block: block.tau, clock=lambda t: t):
        theta = robot.theta_nominal if theta is None else theta
        exact = tools.record(robot, theta, payload, motion, SECONDS, gravity=gravity)
        exact = SampleBlock(exact.stamps, exact.sequence, exact.q, exact.v, break_torque(exact))
        return tools.measure(robot, exact.q, exact.v, exact.tau, np.random.default_rng(1))

    return of


def explain(robot, block):
    estimator = StreamingEstimator(robot, SETTINGS)
    estimator.add(block)
    assert not estimator.estimate().is_consistent, "the broken assumption is an alarm"
    return explain_inconsistency(robot, SETTINGS, [block])


def first(robot, block):
    explanation = explain(robot, block)
    assert explanation.hypotheses and "none is proven" in explanation.text
    return explanation.hypotheses[0]


def changed(robot, joint, entry, value):
    theta = robot.theta_nominal.copy()
    theta[10 * robot.n + 4 * joint + entry] += value
    return theta


@pytest.mark.slow
def test_friction_of_a_joint(robot, record):
    found = first(robot, record(changed(robot, 3, 0, 2.0)))
    assert (found.assumption, found.joint, found.unit) == (Assumption.FRICTION, "joint_4", "Nm")
    assert 0.5 < found.amount <= 2.0 <= found.best + 0.7
    assert "the data agree if the friction of joint_4 were" in found.text and "F_c up to" in found.text
    assert "move joint_4 alone" in found.check


@pytest.mark.slow
@pytest.mark.parametrize("joint", [None, 1])
def test_sign_of_the_efforts(robot, record, joint):
    turned = np.where(np.arange(robot.n) == joint, -1.0, 1.0) if joint is not None else -np.ones(robot.n)
    found = first(robot, record(break_torque=lambda block: turned * block.tau))
    assert (found.assumption, found.joint) == (Assumption.EFFORT_SIGN, None if joint is None else "joint_2")


@pytest.mark.slow
def test_tilt_of_gravity(robot, record):
    axis = np.array([0.6, 0.8, 0.0])
    gravity = pin.exp3(np.radians(6.0) * axis) @ robot.gravity
    found = first(robot, record(gravity=gravity))
    assert found.assumption is Assumption.GRAVITY
    assert 2.0 < np.degrees(found.amount) <= 6.0 and np.degrees(found.best) == pytest.approx(6.0, abs=1.5)
    words = found.detail.split("(")[1].split(")")[0]
    assert np.array([float(word) for word in words.split(",")]) @ axis > 0.9


@pytest.mark.slow
def test_lag_of_the_torques(robot, record):
    lag = 18

    def late(block):
        return np.concatenate([np.repeat(block.tau[:1], lag, axis=0), block.tau[:-lag]])

    found = first(robot, record(break_torque=late))
    assert found.assumption is Assumption.TORQUE_LAG and "lagged behind" in found.text
    assert 0.0 < found.amount <= 0.018 and found.best == pytest.approx(0.018, abs=0.005)


@pytest.mark.slow
def test_gain_of_a_joint(robot, record):
    gains = np.where(np.arange(robot.n) == 1, 1.15, 1.0)
    found = first(robot, record(break_torque=lambda block: gains * block.tau))
    assert (found.assumption, found.joint) == (Assumption.TORQUE_GAIN, "joint_2")
    assert found.best == pytest.approx(1.0 / 1.15 - 1.0, abs=0.04) and 1.0 < float(found.detail) <= 1.15


@pytest.mark.slow
def test_offset_of_a_joint(robot, record):
    found = first(robot, record(changed(robot, 4, 3, -0.5)))
    assert (found.assumption, found.joint) == (Assumption.TORQUE_OFFSET, "joint_5")
    assert -0.5 <= found.amount < 0.0 and found.best == pytest.approx(-0.5, abs=0.2)


@pytest.mark.slow
def test_a_payload_beyond_its_prior(robot, record):
    found = first(robot, record(payload=1.6 * robot.payload_prior.nominal * 4.0 / robot.payload_prior.nominal[0]))
    assert found.assumption is Assumption.PAYLOAD_PRIOR and "more than assumed" in found.text
    assert found.best is None, "the wider a prior, the better it suits"


@pytest.mark.slow
def test_a_payload_that_changes(robot, record, dumbbell):
    lost = record(payload=np.zeros(10))
    held = record()
    late = (np.arange(len(held)) > 1100)[:, None]
    block = SampleBlock(held.stamps, held.sequence, held.q, held.v, np.where(late, lost.tau, held.tau))
    found = first(robot, block)
    assert found.assumption is Assumption.PAYLOAD_CHANGE
    times = [float(word) for word in found.detail.removeprefix("between ").removesuffix(" s").split(" and ")]
    assert min(times) - 0.1 <= 1.1 <= max(times) + 0.1
    assert len(set(times)) == len(times), "a time is told once"


@pytest.mark.slow
def test_of_data_that_agree_nothing_is_claimed(robot, record):
    explanation = explain_inconsistency(robot, SETTINGS, [record()])
    assert explanation.misfit < 0.8 and explanation.windows == 19
    assert explain_inconsistency(robot, SETTINGS, []) is None
    assert explain_inconsistency(robot, SETTINGS, [record().slice(0, 20)]) is None


@pytest.mark.slow
def test_what_was_found_before_the_end_was_asked_for_is_kept_and_what_was_not_tried_is_named(robot, record):
    block = record(changed(robot, 3, 0, 2.0))

    def stopped_before(program):
        asked = iter(range(1000))
        return explain_inconsistency(robot, SETTINGS, [block], is_cancelled=lambda: next(asked) >= program)

    assert stopped_before(0) is None and stopped_before(1) is None
    early = stopped_before(2 + 1)  # the program of the data as they are, and one of a sign
    assert early.hypotheses == () and early.untried[0] is Assumption.EFFORT_SIGN and len(early.untried) == 8
    assert early.text.startswith("Stopped on request before all of these were tried: effort sign, payload prior")
    assert early.text.endswith("None of the hypotheses tried makes the data feasible by itself.")
    # Signs, gains and offsets of all joints, friction of three, and both programs of the fourth.
    later = stopped_before(2 + (1 + robot.n) + 2 * robot.n + 5)
    assert later.untried == early.untried[4:] and later.untried[0] is Assumption.FRICTION
    whole = explain_inconsistency(robot, SETTINGS, [block])
    assert whole.untried == () and not whole.text.startswith("Stopped")
    assert later.hypotheses and {one.text for one in later.hypotheses} <= {one.text for one in whole.hypotheses}


@pytest.mark.slow
def test_two_broken_assumptions_are_not_taken_for_one(robot, record):
    gains = np.where(np.arange(robot.n) == 1, 1.3, 1.0)
    turned = np.where(np.arange(robot.n) == 5, -1.0, 1.0)
    explanation = explain(robot, record(break_torque=lambda block: gains * turned * block.tau))
    assert explanation.misfit > 1.0 and explanation.hypotheses == ()
    assert "No single changed assumption" in explanation.text
