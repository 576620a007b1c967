"""Executables of nodes print help in place of starting, and refuse what is no argument of ROS."""

import pytest
import rclpy

from sysid_ros.nodes.arm_driver import ArmDriverNode
from sysid_ros.nodes.monitor import MonitorNode
from sysid_ros.ros.node import spin_main


@pytest.fixture(autouse=True)
def no_start(monkeypatch):
    def start(*_, **__):
        raise AssertionError("ROS was started")

    monkeypatch.setattr(rclpy, "init", start)


@pytest.mark.parametrize(("node", "parameter"), [(ArmDriverNode, "heartbeat_timeout (0.2 s)"), (MonitorNode, "rate (")])
def test_help_tells_parameters_and_starts_nothing(node, parameter, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        spin_main(node, ["lib/sysid_ros/a_node", "--help", "--ros-args", "-r", "__ns:=/left"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and text.startswith("usage: a_node [-h] [--ros-args") and parameter in text
    assert "ros2 run sysid_ros a_node --ros-args -p model:=" in text and max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("words", [["--model", "ur5e"], ["help"], ["--hel"]])
def test_words_that_are_no_arguments_of_ros_are_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        spin_main(MonitorNode, ["monitor", *words, "--ros-args", "-p", "rate:=5.0"])
    assert ended.value.code == 2 and f"unrecognized arguments: {' '.join(words)}" in capsys.readouterr().err
