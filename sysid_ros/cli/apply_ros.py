"""Targets of ``sysid apply`` that are reached by services of ROS."""

from __future__ import annotations

import argparse
import contextlib
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from sysid_ros.cli.apply import Target, UniversalRobots, xyz
from sysid_ros.core.common.errors import NotConfirmed, SysidError
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.model.inertia import from_com_form, to_com_form
from sysid_ros.drivers.arm import ArmError, Array, ControllerPayload
from sysid_ros.reports.exported import ExportedPayload
from sysid_ros.reports.folders import unusable_result
from sysid_ros.reports.payload_files import Load, numbers
from sysid_ros.reports.writer import MOVEIT

_GRAVITY = 9.81
"""As the documentation of the admittance controller has it [m/s^2]."""
_SMALLEST_GYRATION = 0.01
"""No load has a smaller radius of gyration [m]: an inertia that is not well known may be no body's."""
_ATTACHED_OBJECTS = 4
"""``moveit_msgs/PlanningSceneComponents.ROBOT_STATE_ATTACHED_OBJECTS``."""


class RosTarget(Target):
    """A target with services; ``needs`` are the types of their messages."""

    needs: tuple[str, ...] = ()

    @cached_property
    def _caller(self) -> Any:
        from sysid_ros.ros.services import ServiceCaller

        return self.stack.enter_context(contextlib.closing(ServiceCaller(self.needs)))

    def _full_name(self, name: str) -> str:
        return "/".join(["", *filter(None, self.options.namespace.split("/")), name])


class UrDriver(RosTarget, UniversalRobots):
    """The ROS 2 driver of Universal Robots, read back over RTDE."""

    needs = ("ur_msgs/srv/SetPayload",)

    def __init__(self, options: argparse.Namespace, exported: ExportedPayload):
        super().__init__(options, exported)
        self.call = options.service

    def _send(self) -> None:
        fields: dict[str, object] = {"mass": self.load.mass, "center_of_gravity": xyz(self.load.com)}
        entries = dict(zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), numbers(self.load.entries), strict=True))
        if self.sends_inertia and self._caller.has_fields(self.needs[0], entries):
            fields |= entries
        elif self.sends_inertia:
            self.sends_inertia, self.notes = False, ["the messages of this driver have no inertia; it was left out"]
        self._caller.call(self.needs[0], self.options.service, fields)


class Franka(RosTarget):
    """franka_ros2: its load is tool and payload of the result less the end effector that is set in Desk."""

    name = "franka_ros2"
    call = "load, less the end effector that is set in Desk"
    no_inertia = "the inertia is sent, as a mass without one is refused, as near to this as a body has it; not compared"
    needs = ("franka_msgs/srv/SetLoad", "franka_msgs/msg/FrankaRobotState")

    def _look(self) -> list[str]:
        lines = super()._look()
        self._mass, self._com, tensor = to_com_form(self.load.parameters - self._hand)
        moments, axes = np.linalg.eigh(tensor)
        if not self._mass > 0.0 or (self.sends_inertia and not moments[0] > 0.0):
            raise ArmError(
                f"the end effector that is set in Desk ({self._hand[0]:.3f} kg) is no part of tool and payload of "
                "the result: correct it, or identify again"
            )
        self._tensor = axes @ np.diag(np.maximum(moments, _SMALLEST_GYRATION**2 * self._mass)) @ axes.T
        return [*lines, f"Its load is to be {self._mass:.3f} kg at {self._com.round(4).tolist()} m"]

    def _read(self) -> ControllerPayload:
        state = self._caller.receive(self.needs[1], self._full_name("franka_robot_state_broadcaster/robot_state"))
        self._hand, load = (_of_message(one.inertia) for one in (state.inertia_ee, state.inertia_load))
        whole = Load(*to_com_form(self._hand + load), self.load.frame)
        speed = float(np.abs(state.measured_joint_state.velocity).max(initial=0.0))
        return ControllerPayload(whole.mass, whole.com, whole.entries, speed)

    def _send(self) -> None:
        tensor = numbers(self._tensor.ravel(order="F"))
        fields = {"mass": self._mass, "center_of_mass": numbers(self._com), "load_inertia": tensor}
        advice = "no controller may hold the arm, so leave only the state broadcaster active"
        self._caller.call(self.needs[0], self._full_name("service_server/set_load"), fields, advice)


def _of_message(body: Any) -> Array:
    """Return the parameters of a ``geometry_msgs/Inertia``, (10,)."""
    tensor = [[body.ixx, body.ixy, body.ixz], [body.ixy, body.iyy, body.iyz], [body.ixz, body.iyz, body.izz]]
    return from_com_form(body.m, [body.com.x, body.com.y, body.com.z], tensor)


class Admittance(RosTarget):
    """The admittance controller of ros2_control: parameters that take the weight off its force sensor."""

    no_inertia = "the controller takes no inertia"
    needs = ("rcl_interfaces/srv/GetParameters", "rcl_interfaces/srv/SetParametersAtomically")
    _NAMES = ("gravity_compensation.frame.id", "gravity_compensation.CoG.pos", "gravity_compensation.CoG.force")

    def __init__(self, options: argparse.Namespace, exported: ExportedPayload):
        super().__init__(options, exported)
        self.name, self.sends_inertia = options.controller, False
        self.call = f"{', '.join(self._NAMES)} ({_GRAVITY:g} m/s^2); its force sensor must carry all of it"

    def _look(self) -> list[str]:
        return [*super()._look(), f"seen from '{self._frame}'. An active one gives way to what changes: stand clear"]

    def _read(self) -> ControllerPayload:
        names = (self._NAMES, ("enable_parameter_update_without_reactivation",))
        service = f"{self.name}/get_parameters"  # answers with nothing at all where it has not all of them
        own, others = (self._caller.call(self.needs[0], service, {"names": list(one)}).values for one in names)
        if len(own) != len(self._NAMES) or len(own[1].double_array_value) != 3:
            raise SysidError(f"{self.name} has not all of {', '.join(self._NAMES)}: it is no admittance controller")
        frame, com, force = own
        self._frame = frame.string_value
        self.notes = [] if others and others[0].bool_value else ["it counts with this from its next activation on"]
        return ControllerPayload(force.double_value / _GRAVITY, np.array(com.double_array_value), None, 0.0)

    def _send(self) -> None:
        values = (
            {"type": 4, "string_value": self.load.frame},
            {"type": 8, "double_array_value": numbers(self.load.com)},
            {"type": 3, "double_value": _GRAVITY * self.load.mass},
        )
        parameters = [{"name": name, "value": value} for name, value in zip(self._NAMES, values, strict=True)]
        name = f"{self.name}/set_parameters_atomically"
        result = self._caller.call(self.needs[1], name, {"parameters": parameters}).result
        if not result.successful:
            raise NotConfirmed(f"{name} answered that it failed ({result.reason})")

    def _compare(self) -> list[str]:
        return super()._compare() + ([] if self._frame == self.load.frame else [f"it is seen from '{self._frame}'"])


class MoveIt(RosTarget):
    """MoveIt's planning scene: the payload alone, as an attached object."""

    name = "MoveIt"
    needs = ("moveit_msgs/srv/ApplyPlanningScene", "moveit_msgs/srv/GetPlanningScene")
    confirmed = "link, links that may be touched, shapes and places (within 0.1 mm and 1 mrad)"

    def __init__(self, options: argparse.Namespace, exported: ExportedPayload):
        super().__init__(options, exported)
        self._path, self.sends_inertia = exported.path.with_name(MOVEIT), False
        self._scene, self._fields = read_scene(self._path)
        self._object = self._fields["object"]

    def _describe(self) -> list[str]:
        link, weight = self._fields["link_name"], float(self._fields["weight"])
        shapes = zip(self._object.get("primitives", []), self._object.get("primitive_poses", []), strict=False)
        return [
            f"For MoveIt's planning scene: the payload of {self.exported.robot}, identified {self.exported.created}",
            f"'{self._object['id']}' attached to link '{link}', {weight:.3f} kg, as {self._path.name} has it:",
            *(
                f"  primitive of type {shape['type']}, dimensions {shape['dimensions']} m, at {pose['position']} m"
                for shape, pose in shapes
            ),
        ]

    def _look(self) -> list[str]:
        return []

    def _send(self) -> None:
        self._caller.call(self.needs[0], self._full_name("apply_planning_scene"), {"scene": dict(self._scene)})

    def _compare(self) -> list[str]:
        from sysid_ros.ros.services import compare_attached, fill_message

        where, name = self._full_name("get_planning_scene"), self._object["id"]
        scene = self._caller.call(self.needs[1], where, {"components": {"components": _ATTACHED_OBJECTS}}).scene
        found = [one for one in scene.robot_state.attached_collision_objects if one.object.id == name]
        if not found:
            raise NotConfirmed(f"{where} has no attached object '{name}'; see the log of move_group")
        if found[0].weight == 0.0:
            self.notes = ["MoveIt keeps no weight of attached objects; give it to the robot's controller, too"]
        return compare_attached(fill_message(type(found[0])(), self._fields), found[0])


def read_scene(path: Path) -> tuple[Any, Any]:
    """Return the planning scene of ``payload_moveit.yaml``, and the fields of its attached object.

    Raises:
        SysidError: The file is missing, or does not attach exactly one object, in the frame of its link.
    """
    if not path.is_file():
        raise unusable_result(path, "missing; the report says why it was not written")
    try:
        scene: Any = cast(Any, read_yaml(path))["planning_scene"]
        (fields,) = scene["robot_state"]["attached_collision_objects"]
        frame, link = fields["object"]["header"]["frame_id"], fields["link_name"]
        needed = [fields["object"]["id"], float(fields["weight"])]
    except (KeyError, TypeError, ValueError) as error:
        raise unusable_result(path, f"without a planning scene that attaches one object ({error!r})") from error
    if frame != link or None in needed:
        raise unusable_result(path, f"the object is in frame '{frame}', and must be in the frame of its link, '{link}'")
    return scene, fields
