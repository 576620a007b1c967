"""Starts everything that identifies what an arm holds; the processes come from ``sysid_ros.processes``.

``ros2 launch sysid_ros identify.launch.py model:=kinova_gen3 mode:=mock``, then
``ros2 service call /identification/identify_payload std_srvs/srv/Trigger``.
"""

from __future__ import annotations

from launch import LaunchContext, LaunchDescription
from launch_ros.actions import Node

from sysid_ros.core.model.loader import load_robot
from sysid_ros.launching import describe_launch, make_description_publisher, make_nodes, make_rviz, read_arguments
from sysid_ros.processes import ARGUMENTS, Spelling, publishes_tf, resolve
from sysid_ros.start_check import check_suite, require_movable


def generate_launch_description() -> LaunchDescription:
    """Return the launch arguments, and the nodes once their values are known."""
    return describe_launch(ARGUMENTS, start_nodes)


def start_nodes(context: LaunchContext) -> list[Node]:
    """Return the nodes for the given launch arguments; when one of ours ends, all do.

    Raises:
        SysidError: Some node would refuse what it is given, or no motion of the arm can be certified.
    """
    values = read_arguments(context, ARGUMENTS)
    started = resolve(values)
    found = check_suite(values, started, {}, Spelling.LAUNCH)
    require_movable(found, "ros2 launch sysid_ros identify.launch.py", Spelling.LAUNCH, has_goal=False)
    nodes = make_nodes(started, values)
    if publishes_tf(values):
        nodes.append(make_description_publisher(values, load_robot(values["model"]).urdf))
    if values["launch_rviz"] == "true":
        nodes.append(make_rviz(values, "rviz/identify.rviz"))
    return nodes
