"""Nodes that cannot start with what they were given say why and end with exit status 2."""

import pytest

from sysid_ros.emulators.nodes.arm_emulator import ArmEmulatorNode
from sysid_ros.nodes.arm_driver import ArmDriverNode
from sysid_ros.nodes.estimator import EstimatorNode
from sysid_ros.nodes.excitation_planner import ExcitationPlannerNode
from sysid_ros.nodes.identifiability import IdentifiabilityNode
from sysid_ros.nodes.identification import IdentificationNode
from sysid_ros.nodes.monitor import MonitorNode
from sysid_ros.nodes.safe_planner import SafePlannerNode
from sysid_ros.processes import IDENTIFY
from sysid_ros.ros.node import EXIT_REFUSED, spin_main

NODES = (
    ArmDriverNode, EstimatorNode, ExcitationPlannerNode, IdentifiabilityNode, IdentificationNode, MonitorNode,
    SafePlannerNode,
)  # fmt: skip


def refusal(capfd, node, *parameters):
    arguments = [word for text in parameters for word in ("-p", text)]
    assert spin_main(node, ["node", "--ros-args", *arguments]) == EXIT_REFUSED
    return capfd.readouterr().err


@pytest.mark.parametrize("node", NODES)
def test_unknown_model(capfd, node):
    assert len(NODES) == len(IDENTIFY)
    said = refusal(capfd, node, "model:=kinova_gen4")
    assert "FATAL" in said and "kinova_gen4" in said and "kuka_lbr_med7" in said  # what was given, what there is


@pytest.mark.parametrize(
    ("node", "parameter", "words"),
    [
        (ArmDriverNode, "mode:=dream", "mode 'dream': expected one of 'mock'"),
        (ArmEmulatorNode, "send_period:=0.1", "from 0.001 to 0.01 [s]"),
        (ArmEmulatorNode, "payload:=anvil", "invalid payload 'anvil'"),
        (ArmDriverNode, "commander_timeout:=0.1", "0, or 0.2 to 10"),
        (ArmDriverNode, "batch_rate:=1.0", "from 5 to 200 [Hz]"),
        (ArmDriverNode, "payload:=anvil", "invalid payload 'anvil': expected dumbbell_4lb"),
        (ArmDriverNode, "fault_stuck_encoders:=[elbow]", "joint_1, joint_2"),
        (EstimatorNode, "publish_rate:=0.0", "from 0.1 to 50 [Hz]"),
        (EstimatorNode, "publish_rate:=5", "a number with a decimal point"),
        (EstimatorNode, "error_terms:=[torque, magic]", "expected one of 'torque_relative'"),
        (EstimatorNode, "windows:=3", "node 'estimator' has no parameter 'windows'; it has model"),
        (ExcitationPlannerNode, "criterion:=beauty", "expected one of 'bounds'"),
        (SafePlannerNode, "clearance:=-0.1", "from 0 to 1 [m]"),
        (IdentifiabilityNode, "data_interval:=0.1", "from 0.5 to 3600 [s]"),
        (IdentificationNode, "trajectories:=-1", "from 0 to 100"),
        (MonitorNode, "rate:=.nan", "from 0.5 to 60 [Hz]"),
        (MonitorNode, "model:=/nowhere/robot.yaml", "/nowhere/robot.yaml"),
    ],
)
def test_bad_parameter(capfd, node, parameter, words):
    said = refusal(capfd, node, parameter)
    assert "FATAL" in said and words in said, said
