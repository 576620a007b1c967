"""Taking an LBR over: torque limits that are too low."""

from dataclasses import replace

import pytest
from fri_bench import ROBOT, RunningEmulator, make_arm, make_controller

from sysid_ros.drivers.takeover import TakeoverRefused


def test_torque_limits_that_do_not_hold_the_arm_are_refused_before_torque(port):
    controller = make_controller(payload="1.0")
    weak = replace(ROBOT, limits=replace(ROBOT.limits, tau_max=ROBOT.limits.tau_max / 10.0))
    with RunningEmulator(controller, port), pytest.raises(TakeoverRefused, match="lbr_A. needs .* Nm at rest.*Raise"):
        make_arm(port, weak).connect()
    assert not any("COMMANDING_ACTIVE" in report for report in controller.reports)
