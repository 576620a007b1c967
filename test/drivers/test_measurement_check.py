from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.drivers.arm import ArmState
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.measurement_check import MeasurementCheck

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
        assert check.find_fault(state(k, q=0.001 * k, v=1.0)) == ""
        assert check.find_effort_fault(state(k)) == ""


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
    assert check.find_fault(state(0)) == ""
    assert message in check.find_fault(bad)
    assert check.find_fault(state(2, q=0.001)) == ""


def test_a_gap_allows_a_larger_step(check):
    assert check.find_fault(state(0)) == ""
    assert check.find_fault(state(40, q=0.1)) == ""


def test_an_effort_that_is_not_a_number(check):
    assert check.find_effort_fault(spoiled("tau")) == "the torque of joint_4 is nan"


def test_a_position_that_never_changes_while_the_reference_moves_is_stuck(check):
    moved = 0.0
    for k in range(100):
        q = np.full(7, 1e-3 * k)
        q[5] = 0.0
        assert check.find_fault(replace(state(k), q=q)) == ""
        moved = 1e-3 * k
        fault = check.find_stuck_joint(np.full(7, moved), BOUND)
        if fault:
            break
    assert "the position of joint_6 has not changed" in fault
    assert moved == pytest.approx(0.011)  # the first step beyond 0.01 rad, half the bound


def test_a_joint_that_hardly_moves_is_not_stuck(check, robot):
    """An amplitude below the resolution, for long: the reading rightly stays the same."""
    amplitude = 0.4 * robot.sensors.position_resolution
    for k in range(5000):
        assert check.find_fault(state(k)) == ""
        assert check.find_stuck_joint(amplitude * np.sin(0.05 * k), BOUND) == ""
