"""Starts everything that identifies what an arm holds; the processes come from ``sysid_ros.processes``.

``ros2 launch sysid_ros identify.launch.py model:=kinova_gen3 mode:=mock``, then
``ros2 service call /identification/identify_payload std_srvs/srv/Trigger``.
"""

from __future__ import annotations

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from sysid_ros.processes import ARGUMENTS, resolve
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
        for argument in ARGUMENTS
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=start_nodes)])


def start_nodes(context: LaunchContext) -> list[Node]:
    """Return the nodes for the given launch arguments; when one of ours ends, all do."""
    values = {argument.name: LaunchConfiguration(argument.name).perform(context) for argument in ARGUMENTS}
    nodes = [
        Node(
            package=PACKAGE,
            executable=started.process.executable,
            namespace=started.namespace,
            parameters=[*map(str, started.parameter_files), dict(started.parameters)],
            output="both",
            on_exit=Shutdown(reason=f"{started.process.executable} ended"),
        )
        for started in resolve(values)
    ]
    return nodes + (rviz_nodes(values) if values["launch_rviz"] == "true" else [])


def rviz_nodes(values: dict[str, str]) -> list[Node]:
    """RViz and what it needs to show the arm."""
    from sysid_ros.core.model.loader import load_robot  # reads the whole model: only when it is shown

    use_sim_time = values["use_sim_time"] == "true"
    description = ParameterValue(load_robot(values["model"]).urdf, value_type=str)
    configuration = values["rviz_config_file"] or str(resource("rviz/identify.rviz"))
    return [
        Node(
            package="robot_state_publisher",
            executable="robot_state_publisher",
            namespace=values["robot_name"],
            parameters=[{"robot_description": description, "use_sim_time": use_sim_time}],
        ),
        Node(
            package="rviz2",
            executable="rviz2",
            namespace=values["robot_name"],
            arguments=["-d", configuration],
            parameters=[{"use_sim_time": use_sim_time}],
        ),
    ]
