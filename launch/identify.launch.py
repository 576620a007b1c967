"""Starts everything that identifies what an arm holds; the processes come from ``sysid_ros.processes``.

``ros2 launch sysid_ros identify.launch.py model:=kinova_gen3 mode:=mock``, then
``ros2 service call /identification/identify_payload std_srvs/srv/Trigger``.
"""

from __future__ import annotations

from launch import LaunchContext, LaunchDescription
from launch_ros.actions import Node

from sysid_ros.launching import describe_launch, make_description_publisher, make_nodes, make_rviz, read_arguments
from sysid_ros.processes import ARGUMENTS, resolve


def generate_launch_description() -> LaunchDescription:
    """Return the launch arguments, and the nodes once their values are known."""
    return describe_launch(ARGUMENTS, start_nodes)


def start_nodes(context: LaunchContext) -> list[Node]:
    """Return the nodes for the given launch arguments; when one of ours ends, all do."""
    values = read_arguments(context, ARGUMENTS)
    return make_nodes(resolve(values), values) + (rviz_nodes(values) if values["launch_rviz"] == "true" else [])


def rviz_nodes(values: dict[str, str]) -> list[Node]:
    """RViz and what it needs to show the arm."""
    from sysid_ros.core.model.loader import load_robot  # reads the whole model: only when it is shown

    publisher = make_description_publisher(values, load_robot(values["model"]).urdf)
    return [publisher, make_rviz(values, "rviz/identify.rviz")]
