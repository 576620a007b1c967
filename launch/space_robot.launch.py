"""Starts a free-flying robot, simulated or not, and its identification; ``sysid_ros.processes`` has the processes.

``ros2 launch sysid_ros space_robot.launch.py model:=servicer speed:=5.0``, then
``ros2 action send_goal /free_flyer_identification/identify sysid_msgs/action/Identify "{seed: 1}"``.
"""

from __future__ import annotations

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from sysid_ros.processes import SPACE_ARGUMENTS, resolve_space
from sysid_ros.resources import PACKAGE, resource


def generate_launch_description() -> LaunchDescription:
    """Return the launch arguments, and the nodes once their values are known."""
    arguments = [
        DeclareLaunchArgument(
            argument.name,
            default_value=argument.default,
            description=argument.description,
            choices=list(argument.choices) or None,
        )
        for argument in SPACE_ARGUMENTS
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=start_nodes)])


def start_nodes(context: LaunchContext) -> list[Node]:
    """Return the nodes for the given launch arguments; when one of ours ends, all do."""
    values = {argument.name: LaunchConfiguration(argument.name).perform(context) for argument in SPACE_ARGUMENTS}
    nodes = [
        Node(
            package=PACKAGE,
            executable=started.process.executable,
            namespace=started.namespace,
            parameters=[*map(str, started.parameter_files), dict(started.parameters)],
            output="both",
            on_exit=Shutdown(reason=f"{started.process.executable} ended"),
        )
        for started in resolve_space(values)
    ]
    if values["launch_rviz"] == "true":
        configuration = values["rviz_config_file"] or str(resource("rviz/space_robot.rviz"))
        nodes.append(Node(package="rviz2", executable="rviz2", namespace=values["robot_name"],
                          arguments=["-d", configuration]))  # fmt: skip
    return nodes
