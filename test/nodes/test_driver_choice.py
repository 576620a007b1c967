"""Which driver an arm gets: its settings say so, not the name of the file."""

from dataclasses import replace
from pathlib import Path

import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot
from sysid_ros.nodes.arm_driver import ArmDriverParameters

CONFIG = Path(__file__).parents[2] / "config"


@pytest.mark.parametrize(("source", "driver"), [("kuka_lbr_iiwa14", "fri"), ("kinova_gen3", "kortex")])
def test_a_copy_with_tighter_limits_keeps_its_driver(tmp_path, source, driver):
    """As the check-list for the first motion asks for."""
    text = (CONFIG / f"{source}.yaml").read_text().replace("../urdf/", f"{CONFIG.parent}/urdf/")
    copy = tmp_path / "first_motion.yaml"
    copy.write_text(text)
    robot = load_robot(copy)
    assert robot.protocol == driver
    build = ArmDriverParameters(model=str(copy), mode="hardware", robot_ip="192.0.2.1").build(robot)
    (setup,) = build.args
    assert setup.driver.value == driver


def test_an_arm_without_a_protocol_has_no_driver_of_its_own():
    robot = replace(load_robot("kinova_gen3"), protocol="")
    with pytest.raises(ParameterOutOfRange, match="settings name no protocol of its controller .fri for KUKA LBR"):
        ArmDriverParameters(model="kinova_gen3", mode="hardware", robot_ip="192.0.2.1").build(robot)


def test_a_real_arm_gets_no_law_without_a_proven_bound_unless_that_is_accepted():
    robot = load_robot("kinova_gen3")
    parameters = ArmDriverParameters(
        model="kinova_gen3", mode="hardware", robot_ip="192.0.2.1", controller="gravity_pid"
    )
    with pytest.raises(ParameterOutOfRange, match="robust on a real arm.*accept_unproven_controller=true accepts that"):
        parameters.build(robot)
    (setup,) = replace(parameters, accept_unproven_controller=True).build(robot).args
    assert setup.controller == "gravity_pid"
    (setup,) = ArmDriverParameters(model="kinova_gen3", mode="mock", controller="gravity_pid").build(robot).args
    assert setup.controller == "gravity_pid"
