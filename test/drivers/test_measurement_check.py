from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.drivers.arm import ArmState
from sysid_ros.drivers.loop_types import LoopCode, LoopSettings
from sysid_ros.drivers.monitors import MeasurementCheck

PERIOD = 0.001
BOUND = np.full(7, 0.02)


@pytest.fixture
def check(robot):
    return MeasurementCheck(robot, LoopSettings(), PERIOD)


def state(k, q=0.0, v=0.0, tau=0.0, **changes):
    fields = {name: np.full(7, value) for name, value in (("q", q), ("v", v), ("tau", tau))}
    return replace(ArmState(k * 1_000_000, **fields), **changes)


def spoiled(name, k=1):
    values = np.zeros(7)
    values[3] = np.nan
    return state(k, **{name: 0.0}) if name == "none" else replace(state(k), **{name: values})


def test_good_states_pass(check):
    for k in range(5):
        assert check.find_fault(state(k, q=0.001 * k, v=1.0)) is None
        assert check.find_effort_fault(state(k)) is None


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (state(1, ok=False), "no fresh measurement"),
        (spoiled("q"), "the position of joint_4 is nan"),
        (spoiled("v"), "the velocity of joint_4 is nan"),
        (state(0), "the stamp 0 ns is not later than the one before, 0 ns"),
        (state(1, q=0.1), "the position of joint_5 jumped by 0.1000 rad"),
    ],
)
def test_bad_states_are_named_and_forgotten(check, bad, message):
    assert check.find_fault(state(0)) is None
    fault = check.find_fault(bad)
    assert message in fault.reason and fault.code is LoopCode.INVALID_MEASUREMENT and not fault.ends_control
    assert check.find_fault(state(2, q=0.001)) is None


def test_a_gap_allows_a_larger_step(check):
    assert check.find_fault(state(0)) is None
    assert check.find_fault(state(40, q=0.1)) is None


def test_an_effort_that_is_not_a_number(check):
    assert check.find_effort_fault(spoiled("tau")).reason == "the torque of joint_4 is nan"


NOTHING = np.zeros(7)
UNKNOWN = np.full(7, np.inf)


def find_stuck(robot, speed, velocity_bound, bound=BOUND, seconds=1.0):
    """Drives all joints at a speed while the reading of joint_6 stays; returns the fault and how far all moved."""
    check = MeasurementCheck(robot, LoopSettings(), PERIOD)
    for k in range(round(seconds / PERIOD)):
        moved = np.full(7, speed * PERIOD * k)
        q = moved.copy()
        q[5] = 0.0
        assert check.find_fault(replace(state(k), q=q)) is None
        fault = check.find_stuck_joint(moved, np.full(7, speed), bound, velocity_bound)
        if fault is not None:
            return fault, moved[0]
    return None, moved[0]


def test_a_position_that_never_changes_while_the_reference_moves_is_stuck(robot):
    fault, moved = find_stuck(robot, 1.0, UNKNOWN)
    assert "the position of joint_6 has not changed" in fault.reason
    assert fault.ends_control and fault.is_blind  # its velocity must not be damped
    assert moved == pytest.approx(0.011)  # the first step beyond 0.01 rad
    assert find_stuck(robot, 1.0, UNKNOWN, bound=np.full(7, 0.004))[1] == pytest.approx(0.005)


def test_a_joint_that_surely_follows_is_known_to_be_stuck_soon(robot):
    steps = 8.0 * robot.sensors.position_resolution[5]
    fault, moved = find_stuck(robot, 0.5, np.full(7, 0.1))
    assert "the position of joint_6 has not changed" in fault.reason
    assert abs(moved - steps / 0.8) < 2e-3 and moved < 0.005
    # Below the bound of the velocity error nothing is sure; friction may hold the joint.
    assert find_stuck(robot, 0.02, np.full(7, 0.03), seconds=0.3) == (None, pytest.approx(0.006, abs=1e-4))


def test_a_joint_held_by_friction_where_the_reference_turns_is_not_stuck(check):
    """The true joint stays while the reference goes back and forth within the certified errors."""
    for k in range(3000):
        assert check.find_fault(state(k)) is None
        q_d, v_d = 0.45 * BOUND * np.sin(2e-3 * k), 0.9 * BOUND * np.cos(2e-3 * k)
        assert check.find_stuck_joint(q_d, v_d, BOUND, 0.9 * BOUND) is None


def test_a_joint_that_hardly_moves_is_not_stuck(check, robot):
    """An amplitude below the resolution, for long: the reading rightly stays the same."""
    amplitude = 0.4 * robot.sensors.position_resolution
    for k in range(5000):
        assert check.find_fault(state(k)) is None
        assert check.find_stuck_joint(amplitude * np.sin(0.05 * k), 50.0 * amplitude, BOUND, NOTHING + 0.05) is None


def test_a_reading_that_changes_in_every_cycle_is_never_stuck(robot):
    """With fine encoders a joint passes many steps within one cycle."""
    fine = replace(robot, sensors=replace(robot.sensors, position_resolution=np.full(7, 1e-6)))
    check, speed = MeasurementCheck(fine, LoopSettings(), PERIOD), 1.0
    for k in range(5):
        q = np.full(7, speed * PERIOD * k)
        assert check.find_fault(state(k, q=q[0])) is None
        assert check.find_stuck_joint(q, np.full(7, speed), BOUND, BOUND) is None
    assert check.find_fault(replace(state(5), q=q)) is None
    assert "has not changed" in check.find_stuck_joint(q + speed * PERIOD, np.full(7, speed), BOUND, BOUND).reason
