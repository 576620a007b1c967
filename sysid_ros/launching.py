"""What the launch files share. Only they import it: ``launch`` comes with ROS and not as a wheel."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.optional import describe_missing
from sysid_ros.processes import (
    RESPAWN_DELAY,
    STOP_TIMEOUT,
    Argument,
    StartedProcess,
    key_variables,
    network_of,
    security_variables,
    unknown_argument,
)
from sysid_ros.resources import PACKAGE, resource

_OF_LAUNCH = ("launch-prefix", "launch-prefix-filter", "sigterm_timeout", "sigkill_timeout", "emulate_tty")
"""Launch configurations that ``launch`` itself reads for every process, so anybody may give them."""


def describe_launch(
    arguments: Sequence[Argument], start_nodes: Callable[[LaunchContext], list[Node]]
) -> LaunchDescription:
    """Return a description of launch arguments, and of the nodes once their values are known.

    Args:
        arguments: The arguments.
        start_nodes: Returns the nodes for the values in a context.
    """
    declared = []
    for argument in arguments:
        default: Any = argument.default
        if argument.alias:
            text = f"The same as {argument.name}"
            declared.append(DeclareLaunchArgument(argument.alias, default_value=default, description=text))
            default = LaunchConfiguration(argument.alias)
        declared.append(
            DeclareLaunchArgument(
                argument.name,
                default_value=default,
                description=argument.description,
                choices=list(argument.allowed) or None,
            )
        )

    def start(context: LaunchContext) -> list[Node]:
        try:
            return start_nodes(context)
        except ModuleNotFoundError as error:
            raise SysidError(describe_missing(error)) from error

    return LaunchDescription([*declared, OpaqueFunction(function=start)])


def read_arguments(context: LaunchContext, arguments: Sequence[Argument]) -> dict[str, str]:
    """Return the values of launch arguments as texts.

    Args:
        context: The launch.
        arguments: The arguments.

    Raises:
        SysidError: Another one was typed.
    """
    _refuse_unknown(context, arguments)
    return {argument.name: LaunchConfiguration(argument.name).perform(context) for argument in arguments}


def _refuse_unknown(context: LaunchContext, arguments: Sequence[Argument]) -> None:
    """Refuse unknown arguments: ``ros2 launch`` itself passes over them, and the defaults hold.

    Only where the command line names our file. In a launch file of others that includes ours, the command line and the
    launch configurations hold arguments of theirs, which cannot be told from misspelt ones of ours.
    """
    path = Path(context.get_locals_as_dict().get("current_launch_file_path", ""))
    if not any(Path(word).absolute() == path or (word == path.name and PACKAGE in sys.argv) for word in sys.argv):
        return
    valid = [name for one in arguments for name in (one.name, one.alias) if name]
    for word in context.argv:
        name = word.partition(":=")[0]
        if name not in (*valid, *_OF_LAUNCH):
            raise unknown_argument(name, valid)


def make_nodes(processes: Sequence[StartedProcess], values: Mapping[str, str]) -> list[Node]:
    """Make the nodes of processes: all end when one that is required does; the others are started again.

    Args:
        processes: What to start.
        values: Launch arguments as texts.
    """
    key, network = key_variables(processes), network_of(values)
    nodes = []
    for one in processes:
        process = one.process
        own = security_variables(process.executable, one.namespace)
        # The user's own key is for those processes alone, too.
        variables = {**network, **own, **(key if process.has_key else dict.fromkeys(key, ""))}
        ending: dict[str, Any] = {"respawn": True, "respawn_delay": RESPAWN_DELAY}
        if process.is_required:
            ending = {"on_exit": partial(end_launch, process.executable)}
        nodes.append(
            Node(
                package=PACKAGE,
                executable=process.executable,
                namespace=one.namespace,
                parameters=[*map(str, one.parameter_files), dict(one.parameters)],
                additional_env=variables,
                sigterm_timeout=str(STOP_TIMEOUT),  # the arm is brought to rest and handed back first
                output="both",
                **ending,
            )
        )
    return nodes


def end_launch(name: str, event: Any, context: LaunchContext) -> None:
    """End the launch, with an exit status that says that it failed: a process has ended that the suite needs.

    Args:
        name: Name of the process.
        event: Its end.
        context: The launch.

    Raises:
        SysidError: Always, unless the launch is ending anyhow; ``launch`` then ends all others in order.
    """
    if not context.is_shutdown:
        raise SysidError(f"{name} ended with exit code {event.returncode}, and the suite needs it")


def make_description_publisher(values: Mapping[str, str], urdf: str) -> Node:
    """Make the node that publishes the transforms of a robot's links.

    Args:
        values: Launch arguments as texts.
        urdf: Description of the robot.
    """
    return Node(
        package="robot_state_publisher",
        executable="robot_state_publisher",
        namespace=values["robot_name"],
        additional_env={**network_of(values), **security_variables("robot_state_publisher", values["robot_name"])},
        # Our drivers publish the description for all; two publishers of one topic would be one too many.
        remappings=[] if values["mode"] == "external" else [("robot_description", "~/robot_description")],
        parameters=[
            {
                "robot_description": ParameterValue(urdf, value_type=str),
                "frame_prefix": values.get("tf_prefix", ""),
                "use_sim_time": values["use_sim_time"] == "true",
            }
        ],
    )


def make_rviz(values: Mapping[str, str], configuration: str) -> Node:
    """Make the node of RViz.

    Args:
        values: Launch arguments as texts.
        configuration: File of this package that is used where no other is given.
    """
    return Node(
        package="rviz2",
        executable="rviz2",
        namespace=values["robot_name"],
        additional_env={**network_of(values), **security_variables("operator", values["robot_name"])},
        arguments=["-d", values["rviz_config_file"] or _with_prefix(resource(configuration), values)],
        parameters=[{"use_sim_time": values["use_sim_time"] == "true"}],
    )


def _with_prefix(configuration: Path, values: Mapping[str, str]) -> str:
    """Return a configuration of RViz in which the frames have the prefix of the arm; a copy where there is one."""
    prefix = values.get("tf_prefix", "")
    if not prefix:
        return str(configuration)
    text = configuration.read_text()
    text = re.sub(r"^( *Fixed Frame: )", rf"\g<1>{prefix}", text, flags=re.MULTILINE)
    # RViz itself puts a slash between the two.
    text = re.sub(
        r"^( *)(Description Source: .*)$", rf"\1\2\n\1TF Prefix: {prefix.rstrip('/')}", text, flags=re.MULTILINE
    )
    with NamedTemporaryFile("w", suffix=".rviz", delete=False) as file:
        file.write(text)
    return file.name
