"""Payloads for Franka, MoveIt, simulators and robot descriptions: each number with its bounds in a comment or field."""

from __future__ import annotations

import json
from xml.sax.saxutils import quoteattr

import numpy as np

from sysid_ros.reports.payload_files import PAYLOAD_LINK, TENSOR, Array, Load, describe_load, noted, number, numbers


def franka_file(load_at_flange: Load, payload_at_flange: Load, tool_in_flange: Array, note: str | None = None) -> str:
    """Contents of ``payload_franka.json``: the end effector for Franka Desk, and the arguments of libfranka's setLoad.

    The keys of the end effector are those of Franka's ``endeffector-config.json``, as its documentation (RIDE CLI, "End
    effector commissioning") and its example for a Robotiq gripper (frankaemika/external_gripper_example) have them.

    Args:
        load_at_flange: Tool and payload together.
        payload_at_flange: The payload alone.
        tool_in_flange: Homogeneous transform of the tool frame in the flange frame, (4, 4) [m].
        note: One line for the reader.
    """
    data = {
        "mass": number(load_at_flange.mass),
        "centerOfMass": numbers(load_at_flange.com),
        "inertia": numbers(load_at_flange.inertia_com.ravel(order="F")),
        "transformation": numbers(tool_in_flange.ravel(order="F")),
        "setLoad": {
            "load_mass": number(payload_at_flange.mass),
            "F_x_Cload": numbers(payload_at_flange.com),
            "load_inertia": numbers(payload_at_flange.inertia_com.ravel(order="F")),
        },
        "comments": [
            *noted(note),
            "mass [kg], centerOfMass [m] and inertia [kg m^2] (about the centre of mass, column by column) of all "
            f"behind the flange, seen from the flange '{load_at_flange.frame}'; transformation: flange to tool, column "
            "by column. The keys of Franka's endeffector-config.json: for Desk remove setLoad and comments; an archive "
            "of an end effector also wants id, name and color.",
            *describe_load(load_at_flange),
            "setLoad: arguments of franka::Robot::setLoad for the payload alone, where the tool is set in Desk.",
            *describe_load(payload_at_flange),
        ],
    }
    return json.dumps(data, indent=2) + "\n"


def planning_scene(payload_at_tool: Load) -> dict[str, object]:
    """Return a moveit_msgs/PlanningScene difference that attaches the payload with its weight.

    Its shape is a sphere as large as its radius of gyration, only so that the message is complete: the true shape is
    the user's.
    """
    body = payload_at_tool
    gyration = float(np.sqrt(0.5 * np.trace(body.inertia_com) / body.mass))
    header = {"frame_id": body.frame}
    pose = {
        "position": dict(zip("xyz", numbers(body.com), strict=True)),
        "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0},
    }
    thing = {
        "header": header,
        "id": PAYLOAD_LINK,
        "primitives": [{"type": 2, "dimensions": [round(max(gyration, 1e-3), 3)]}],
        "primitive_poses": [pose],
        "operation": 0,
    }
    attached = {"link_name": body.frame, "object": thing, "touch_links": [body.frame], "weight": number(body.mass)}
    return {"is_diff": True, "robot_state": {"is_diff": True, "attached_collision_objects": [attached]}}


def sdf_file(payload_at_tool: Load, note: str | None = None) -> str:
    """Contents of ``payload.sdf``: a link with the inertial block, to be fixed to the tool frame."""
    i = _tensor(payload_at_tool)
    tensor = "\n".join(f"        <i{name}>{value!r}</i{name}>" for name, value in i.items())
    return f"""<?xml version="1.0"?>
{_comment(payload_at_tool, note)}
<sdf version="1.9">
  <model name="{PAYLOAD_LINK}">
    <link name="{PAYLOAD_LINK}">
      <inertial>
        <pose>{_com(payload_at_tool)} 0 0 0</pose>
        <mass>{number(payload_at_tool.mass)!r}</mass>
        <inertia>
{tensor}
        </inertia>
      </inertial>
    </link>
  </model>
</sdf>
"""


def mjcf_file(payload_at_tool: Load, note: str | None = None) -> str:
    """Contents of ``payload_mjcf.xml``: a MuJoCo model of one body, to be included in the body of the tool frame."""
    order = " ".join(map(repr, numbers(payload_at_tool.entries)))
    return f"""{_comment(payload_at_tool, note)}
<mujoco model="{PAYLOAD_LINK}">
  <worldbody>
    <body name="{PAYLOAD_LINK}">
      <inertial pos="{_com(payload_at_tool)}" mass="{number(payload_at_tool.mass)!r}" fullinertia="{order}"/>
    </body>
  </worldbody>
</mujoco>
"""


def xacro_file(payload_at_tool: Load, note: str | None = None) -> str:
    """Contents of ``payload.xacro``: a macro that adds the payload to a description, at a link of the user's choice."""
    i = _tensor(payload_at_tool)
    tensor = " ".join(f'i{name}="{value!r}"' for name, value in i.items())
    default = quoteattr(f"parent:='{payload_at_tool.frame}' prefix:=''")
    return f"""<?xml version="1.0"?>
{_comment(payload_at_tool, note)}
<robot xmlns:xacro="http://www.ros.org/wiki/xacro">
  <xacro:macro name="{PAYLOAD_LINK}" params={default}>
    <link name="${{prefix}}{PAYLOAD_LINK}">
      <inertial>
        <origin xyz="{_com(payload_at_tool)}" rpy="0 0 0"/>
        <mass value="{number(payload_at_tool.mass)!r}"/>
        <inertia {tensor}/>
      </inertial>
    </link>
    <joint name="${{prefix}}{PAYLOAD_LINK}_joint" type="fixed">
      <parent link="${{parent}}"/>
      <child link="${{prefix}}{PAYLOAD_LINK}"/>
      <origin xyz="0 0 0" rpy="0 0 0"/>
    </joint>
  </xacro:macro>
</robot>
"""


def moveit_blocks(payload_at_tool: Load) -> dict[str, object]:
    """Return what MoveIt takes: weight and inertial element, and the message that attaches the payload."""
    mass, com = number(payload_at_tool.mass), numbers(payload_at_tool.com)
    tensor = {f"i{axes}": value for axes, value in _tensor(payload_at_tool).items()}
    return {
        "attached_collision_object": {"link_name": payload_at_tool.frame, "weight": mass},
        "urdf_inertial": {"origin_xyz": com, "origin_rpy": [0.0, 0.0, 0.0], "mass": mass, **tensor},
        "planning_scene": planning_scene(payload_at_tool),
    }


def _com(load: Load) -> str:
    return " ".join(map(repr, numbers(load.com)))


def _tensor(load: Load) -> dict[str, float]:
    return {axes: number(load.inertia_com[at]) for axes, at in TENSOR.items()}


def _comment(load: Load, note: str | None) -> str:
    lines = [*noted(note), f"In the frame of the URDF link '{load.frame}'; kg, m, kg m^2 about the centre of mass."]
    text = "\n  ".join([*lines, *describe_load(load)]).replace("--", "- -")
    return f"<!--\n  {text}\n-->"
