"""Starts a free-flying robot, simulated or not, and its identification; ``sysid_ros.processes`` has the processes.

``ros2 launch sysid_ros space_robot.launch.py model:=servicer speed:=5.0``, then
``ros2 action send_goal /free_flyer_identification/identify sysid_msgs/action/Identify "{seed: 1}"``.
"""

from __future__ import annotations

from launch import LaunchContext, LaunchDescription
from launch_ros.actions import Node

from sysid_ros.launching import describe_launch, make_description_publisher, make_nodes, make_rviz, read_arguments
from sysid_ros.processes import SPACE_ARGUMENTS, resolve_space


def generate_launch_description() -> LaunchDescription:
    """Return the launch arguments, and the nodes once their values are known."""
    return describe_launch(SPACE_ARGUMENTS, start_nodes)


def start_nodes(context: LaunchContext) -> list[Node]:
    """Return the nodes for the given launch arguments; when one of ours ends, all do."""
    values = read_arguments(context, SPACE_ARGUMENTS)
    return make_nodes(resolve_space(values), values) + (rviz_nodes(values) if values["launch_rviz"] == "true" else [])


def rviz_nodes(values: dict[str, str]) -> list[Node]:
    """RViz and what it needs to show the robot; the driver publishes where its base is."""
    from sysid_ros.core.free_floating.robot import load_free_flyer  # reads the whole model: only when it is shown

    publisher = make_description_publisher(values, load_free_flyer(values["model"]).urdf)
    return [publisher, make_rviz(values, "rviz/space_robot.rviz")]
