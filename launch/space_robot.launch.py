"""Starts a free-flying robot, simulated or not, and its identification; ``sysid_ros.processes`` has the processes.

``ros2 launch sysid_ros space_robot.launch.py model:=servicer speed:=5.0``, then
``ros2 action send_goal /free_flyer_identification/identify sysid_msgs/action/Identify "{seed: 1}"``.
"""

from __future__ import annotations

from launch import LaunchContext, LaunchDescription
from launch_ros.actions import Node

from sysid_ros.launching import describe_launch, make_description_publisher, make_nodes, make_rviz, read_arguments
from sysid_ros.processes import SPACE_ARGUMENTS, Spelling, resolve_space
from sysid_ros.space.core.robot import load_free_flyer
from sysid_ros.start_check import require_modules, require_parameters


def generate_launch_description() -> LaunchDescription:
    """Return the launch arguments, and the nodes once their values are known."""
    return describe_launch(SPACE_ARGUMENTS, start_nodes)


def start_nodes(context: LaunchContext) -> list[Node]:
    """Return the nodes for the given launch arguments; when one of ours ends, all do.

    Raises:
        SysidError: Some node would refuse what it is given.
    """
    values = read_arguments(context, SPACE_ARGUMENTS)
    started, robot = resolve_space(values), load_free_flyer(values["model"])
    require_modules(is_simulated=values["mode"] == "mock", is_arm=False)
    require_parameters(started, {}, Spelling.LAUNCH)
    nodes = make_nodes(started, values)
    if values["launch_rviz"] == "true":  # the driver publishes where the base is
        nodes += [make_description_publisher(values, robot.urdf), make_rviz(values, "rviz/space_robot.rviz")]
    return nodes
