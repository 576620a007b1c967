"""What taking over any arm has in common."""

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.drivers.takeover import TakeoverRefused, require_holdable

ROBOT = load_textbook("kinova_gen3")


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("joint", [0, 3, 6])
def test_an_arm_that_needs_more_than_nine_tenths_of_a_torque_limit_at_rest_is_refused(joint, sign):
    effort = 0.5 * ROBOT.limits.tau_continuous
    effort[joint] = sign * 0.89 * ROBOT.limits.tau_continuous[joint]
    require_holdable(ROBOT, effort)
    effort[joint] = sign * 0.91 * ROBOT.limits.tau_continuous[joint]
    with pytest.raises(TakeoverRefused, match=f"{ROBOT.joint_names[joint]} needs {effort[joint]:.2f} Nm at rest"):
        require_holdable(ROBOT, effort)


def test_the_largest_share_is_of_the_joint_with_the_least_room_not_of_the_largest_torque():
    effort = np.zeros(7)
    effort[1], effort[6] = 30.0, 8.5
    with pytest.raises(TakeoverRefused, match=f"hold it: {ROBOT.joint_names[6]} needs 8.50 Nm at rest"):
        require_holdable(ROBOT, effort)
