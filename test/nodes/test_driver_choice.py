"""Which driver an arm gets: its settings say so, not the name of the file."""

from dataclasses import replace
from pathlib import Path

import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import CONTROLLERS
from sysid_ros.core.control.settings import ROBUST
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.modes import TorqueCommand
from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings
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
    refusal = r"first_motion.yaml': expected an arm with elastic joints.*:elastic'"
    for mode in ("hardware", "emulated"):  # an emulated arm has no address elsewhere
        real = {"model": str(copy), "mode": mode, "robot_ip": "192.0.2.1"}
        (setup,) = ArmDriverParameters(**real, accept_rigid_joints=True).build(robot).args
        assert setup.driver.value == driver
        with pytest.raises(ParameterOutOfRange, match=refusal):
            ArmDriverParameters(**real).build(robot)
        elastic = {**real, "model": f"{copy}:elastic"}
        (setup,) = ArmDriverParameters(**elastic).build(load_robot(elastic["model"])).args
        assert setup.build_arm(load_robot(elastic["model"])) is not None
    for simulated in ({"mode": "mock"}, {"mode": "emulated"}, {"mode": "emulated", "robot_ip": "127.0.0.1"}):
        assert ArmDriverParameters(model=str(copy), **simulated).build(robot)


def test_an_arm_without_a_protocol_has_no_driver_of_its_own():
    robot = replace(load_robot("kinova_gen3"), protocol="")
    with pytest.raises(ParameterOutOfRange, match="settings name no protocol of its controller .fri for KUKA LBR"):
        ArmDriverParameters(model="kinova_gen3", mode="hardware", robot_ip="192.0.2.1").build(robot)


@pytest.mark.parametrize("law", [name for name in CONTROLLERS if name != ROBUST])
def test_a_real_arm_gets_no_law_without_a_proven_bound_unless_that_is_accepted(law):
    """And where it is accepted, nothing moves without a certificate, which there is none for; simulated arms may."""
    robot = load_robot("kinova_gen3")

    def setup_of(**values):
        (setup,) = ArmDriverParameters(model="kinova_gen3", controller=law, **values).build(robot).args
        assert setup.controller == law
        return setup

    refusal = "robust where a real arm may move.*accept_unproven_controller=true accepts that"
    # An emulated arm has no address elsewhere, and who is at the other end of topics, nobody knows.
    elsewhere = "192.0.2.1"
    for mode, address in (("hardware", elsewhere), ("emulated", elsewhere), ("emulated_ros2_control", "")):
        topics = Ros2ControlSettings(torque_command=TorqueCommand.FULL)
        real = {"mode": mode, "robot_ip": address, "ros2_control": topics, "accept_rigid_joints": True}
        with pytest.raises(ParameterOutOfRange, match=refusal):
            setup_of(**real)
        assert not setup_of(**real, accept_unproven_controller=True).loop.allows_uncertified
    for simulated in ({"mode": "mock"}, {"mode": "emulated"}, {"mode": "emulated", "robot_ip": "127.0.0.1"}):
        assert setup_of(**simulated).loop.allows_uncertified
    (robust,) = ArmDriverParameters(model="kinova_gen3", mode="mock").build(robot).args
    assert not robust.loop.allows_uncertified
