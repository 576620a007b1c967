"""A payload is identified in lock-step over FRI: state machine, messages both ways, velocities from positions."""

import numpy as np
import pytest
from exciting_motion import expect_alarm, expect_truth_in_narrow_bounds, move
from fri_bench import PERIOD, ROBOT, make_controller
from fri_memory import Memory, connected, use_clock_of

from sysid_ros.drivers.modes import FriVersion


@pytest.fixture(scope="module")
def recorded():
    with pytest.MonkeyPatch.context() as patch:
        controller = make_controller(payload="dumbbell_4lb", version=FriVersion.V2_7)
        memory = Memory(controller)
        use_clock_of(memory, patch)
        loop = connected(memory, FriVersion.V2_7)
        block = move(loop)
        health = loop.arm.health()
        loop.release("test")
    assert health["messages lost"] == health["messages malformed"] == health["session fall-backs"] == 0
    true = [memory.velocities[round((stamp - loop.arm._offset_ns) / (1e9 * PERIOD))] for stamp in block.stamps]
    return block, controller.arm.payload, np.array(true)


def test_the_true_payload_is_inside_bounds_that_are_narrower_than_the_prior(recorded):
    block, truth, _ = recorded
    expect_truth_in_narrow_bounds(ROBOT, block, truth, (5.0, 2.5, 5.0))


def test_velocities_are_as_good_as_the_error_budget_says_and_not_much_better(recorded):
    block, _, true = recorded
    share = np.abs(block.v - true).max(axis=0) / ROBOT.sensors.velocity_error
    assert (share <= 1.0).all() and share.max() > 0.1 and np.abs(true).max() > 0.3, share


def test_torques_of_the_other_sign_are_an_alarm(recorded):
    block, _, _ = recorded
    expect_alarm(ROBOT, block, tau=-block.tau)
