"""A payload is identified in lock-step over Kortex: state machine, frames both ways, degrees, signs, wrapped angles."""

import pytest
from exciting_motion import expect_alarm, expect_truth_in_narrow_bounds, move
from kortex_bench import ROBOT, make_base, make_loop
from kortex_memory import Memory, MemoryArm


@pytest.fixture(scope="module")
def recorded():
    base = make_base(payload="dumbbell_4lb")
    loop = make_loop(MemoryArm(Memory(base), late_limit=10.0, session_timeout=10.0))
    loop.connect()
    block = move(loop)
    health = loop.arm.health()
    loop.release("test")
    assert health["replies missing"] == health["datagrams malformed"] == health["readings not plausible"] == 0
    return block, base.arm.payload


def test_the_true_payload_is_inside_bounds_that_are_narrower_than_the_prior(recorded):
    block, truth = recorded
    expect_truth_in_narrow_bounds(ROBOT, block, truth, (2.4, 2.3, 3.0))


def test_torques_of_the_other_sign_are_an_alarm(recorded):
    block, _ = recorded
    expect_alarm(ROBOT, block, tau=-block.tau)
