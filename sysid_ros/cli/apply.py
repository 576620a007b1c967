"""Gives the payload of a result to a running system, and reads it back: ``sysid apply ur results/... --robot-ip ...``.

Nothing is sent before it was shown, and nothing is confirmed before it was read back.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.terminal import show, working
from sysid_ros.core.common.errors import MISSING, NotConfirmed, ParameterOutOfRange, SysidError
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.model.inertia import from_com_form, to_com_form, transform_parameters
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.arm import ArmError, Array, ControllerPayload
from sysid_ros.drivers.kinova_kortex.enums import ArmState, Function, KortexServerError
from sysid_ros.drivers.kinova_kortex.frame import encode
from sysid_ros.drivers.kinova_kortex.payload import exchange_load
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.universal_robots import SETTLE, RtdeClient, send_payload
from sysid_ros.reports.estimate_yaml import ExportedPayload, read_exported
from sysid_ros.reports.folders import unusable_result
from sysid_ros.reports.payload import felt_torques
from sysid_ros.reports.payload_files import (
    Load,
    describe_load,
    find_well_known,
    kuka_load_data,
    numbers,
    ur_target_payload,
)
from sysid_ros.reports.writer import MOVEIT

MASS, COM, INERTIA = 1e-3, 1e-4, 1e-4
"""Largest differences of a payload that was read back [kg], [m], [kg m^2]."""
_GRAVITY = 9.81
"""As the documentation of the admittance controller has it [m/s^2]."""
_SMALLEST_GYRATION = 0.01
"""No load has a smaller radius of gyration [m]: an inertia that is not well known may be no body's."""
_ATTACHED_OBJECTS = 4
"""``moveit_msgs/PlanningSceneComponents.ROBOT_STATE_ATTACHED_OBJECTS``."""
_SUNRISE_LIMIT = 10.0
"""Sunrise's validation of load data fails where the external torque of an axis is larger [Nm] (iiwa_stack #228)."""


def run(options: argparse.Namespace) -> int:
    """Show, send and read back; return the exit status, or raise :class:`SysidError`."""
    kind: type[Target] = globals()[options.target]
    target = kind(options, read_exported(options.folder, options.accept_uncertain))
    with target.stack:
        return target.run()


class Target:
    """A running system that is given the payload of a result: unless it says otherwise tool and payload together.

    Attributes:
        name: Its name in messages.
        call: What it is sent, in its own words.
        load: Tool and payload at the flange, in the digits of their bounds.
        sends_inertia: Whether its inertia is sent.
        stack: Closes the connections.
    """

    name = call = advice = ""
    no_inertia = "the inertia is left out, and a controller takes zero for it"
    confirmed = f"within {1e3 * MASS:g} g and {1e3 * COM:g} mm"
    is_read = True

    def __init__(self, options: argparse.Namespace, exported: ExportedPayload):
        self.options, self.exported, self.stack = options, exported, contextlib.ExitStack()
        self.load = Load.from_summary(exported.behind_flange)
        self.sends_inertia = Quantity.INERTIA in find_well_known(exported.behind_flange)
        self.found, self.notes = list[str](), list[str]()

    def run(self) -> int:
        """Show, ask, send and read back; return the exit status."""
        show(*self._describe())
        if self.options.dry_run:
            return ExitStatus.OK
        show(*self._look())
        if not self.options.yes:
            if not sys.stdin.isatty():
                raise ParameterOutOfRange("--yes", MISSING, "it, without a terminal to ask at")
            if input("Send it? [y/N] ").strip().lower() not in ("y", "yes"):
                print("Nothing was sent.")
                raise KeyboardInterrupt
        with working(f"sending it to {self.name}"):
            self._send()
        if not self.is_read:
            show(f"{self.name} says that it was set. It was not read back.")
            return ExitStatus.OK
        end = time.monotonic() + SETTLE
        with working("reading it back"):
            try:
                while (different := self._compare()) and time.monotonic() < end:
                    pass
            except SysidError as error:
                if error.is_outcome:
                    raise
                raise NotConfirmed(f"{self.name} was given it and says nothing ({error})") from error
        show(*self.found)
        if different:
            raise NotConfirmed(f"{self.name} has not taken the payload: {'; '.join(different)}. {self.advice}".strip())
        inertia = f", inertia within {INERTIA:g} kg m^2" if self.sends_inertia and not self.notes else ""
        show(*(f"note: {note}" for note in self.notes), f"Confirmed: {self.confirmed}{inertia}.")
        return ExitStatus.OK

    def _describe(self) -> list[str]:
        return [
            f"For {self.name}: tool (nominal) and payload of {self.exported.robot}, identified {self.exported.created}",
            f"seen from the tool flange, for which the URDF link '{self.load.frame}' is taken:",
            *(f"  {line}" for line in [*describe_load(self.load), *([] if self.sends_inertia else [self.no_inertia])]),
            f"As: {self.call}",
        ]

    def _look(self) -> list[str]:
        if not self.is_read:
            return []
        now = self._read()
        if not now.is_at_rest:
            reason = f"the arm moves ({now.speed:.2g} rad/s), and a payload is set at rest; nothing was sent"
            raise ArmError(f"the controller at {self.name}", reason)
        return [f"It has now: {_words(now)}"]

    def _read(self) -> ControllerPayload:
        raise NotImplementedError

    def _send(self) -> None:
        raise NotImplementedError

    def _compare(self) -> list[str]:
        now = self._read()
        self.found = [f"Read back:  {_words(now)}"]
        if self.sends_inertia and now.inertia is None:
            self.notes = ["the software of this controller does not report the inertia; it was not compared"]
        return _differences(self.load, self.sends_inertia, now)


def _words(payload: ControllerPayload) -> str:
    inertia = "" if payload.inertia is None else f", inertia [{', '.join(f'{v:.5f}' for v in payload.inertia)}] kg m^2"
    return f"{payload.mass:.3f} kg at [{', '.join(f'{value:.4f}' for value in payload.com)}] m{inertia}"


def _differences(load: Load, has_inertia: bool, found: ControllerPayload) -> list[str]:
    off = {
        "mass [kg]": (abs(found.mass - load.mass), MASS),
        "centre of gravity [m]": (np.abs(found.com - load.com).max(), COM),
    }
    if has_inertia and found.inertia is not None:
        off["inertia [kg m^2]"] = (np.abs(found.inertia - load.entries).max(), INERTIA)
    # NaN is a difference
    return [f"{name} differs by {value:.3g}" for name, (value, largest) in off.items() if not value <= largest]


def xyz(point: Array) -> dict[str, float]:
    """Return a point as the fields of a message."""
    return dict(zip("xyz", numbers(point), strict=True))


class UniversalRobots(Target):
    """A controller of Universal Robots: a script over TCP, read back over RTDE."""

    advice = (
        "Is it under remote control, is the load within its limits, and does no program set another payload? "
        "Its log says why it refused"
    )
    _client: RtdeClient | None = None

    def __init__(self, options: argparse.Namespace, exported: ExportedPayload):
        super().__init__(options, exported)
        self.name, self.is_read = options.robot_ip or options.service, options.robot_ip is not None
        self.call = ur_target_payload(self.load, self.sends_inertia)

    def _read(self) -> ControllerPayload:
        if self._client is None:
            self._client = self.stack.enter_context(RtdeClient(self.options.robot_ip, self.options.rtde_port))
        return self._client.latest()

    def _send(self) -> None:
        send_payload(self.options.robot_ip, self.call, self.options.script_port)


class Kortex(Target):
    """The base of a Gen3: its payload is tool and payload of the result less its own tool; or all is its tool."""

    no_inertia = "Kinova takes no inertia"

    def __init__(self, options: argparse.Namespace, exported: ExportedPayload):
        super().__init__(options, exported)
        self.name, self.sends_inertia = options.robot_ip, False
        self.call = (
            "tool configuration, and no payload" if options.tool else "payload information, less the base's tool"
        )
        names = ("robot_ip", "port", "port_realtime", "username", "password")
        self._settings = KortexSettings(**{name: getattr(options, name) for name in names})

    def _look(self) -> list[str]:
        lines, base, tool = super()._look(), self._base, self.options.tool
        if base.feedback.state is not ArmState.SERVOING_READY:
            raise ArmError(f"the base at {self.name}", f"is {base.feedback.state.name}; nothing was sent")
        rotation, origin = base.tool_frame
        rest = self.load.parameters - (self.load.parameters if tool else base.of_tool)
        if not rest[0] >= 0.0:
            raise ArmError(
                f"its tool of {base.tool.tool_mass:.3f} kg is heavier than tool and payload of the result; correct it, "
                "or give all as the tool: --tool"
            )
        mass, com, _ = to_com_form(transform_parameters(rest, rotation.T, -rotation.T @ origin))
        payload = encode("PayloadInformation", payload_mass=mass, payload_mass_center=xyz(com))
        self._changes = {Function.SET_PAYLOAD_INFORMATION: payload}
        if tool:
            whole = {"tool_mass": self.load.mass, "tool_mass_center": xyz(self.load.com)}
            data = encode("ToolConfiguration", tool_transform=base.tool.tool_transform, **whole)
            self._changes[Function.SET_TOOL_CONFIGURATION] = data
        return [*lines, f"Its payload is to be {mass:.3f} kg at {com.round(4).tolist()} m, seen from its tool frame"]

    def _read(self) -> ControllerPayload:
        self._base = exchange_load(self._settings)
        speed = float(np.radians(np.abs(self._base.feedback.v).max(initial=0.0)))
        return ControllerPayload(*to_com_form(self._base.parameters)[:2], None, speed)

    def _send(self) -> None:
        try:
            exchange_load(self._settings, self._changes)
        except KortexServerError as error:
            raise NotConfirmed(str(error)) from error


class Kuka(Target):
    """A KUKA LBR: no interface takes load data, so a person enters them and checks the external torques."""

    name = "Sunrise"

    def run(self) -> int:
        """Show what to enter and how to check it; return the exit status."""
        data, robot = kuka_load_data(self.load), load_robot(self.options.model or self.exported.robot)
        torques = felt_torques(robot, self.exported.behind_flange, self.load.parameters, robot.home)
        self.sends_inertia, self.call = True, ", ".join(f"{name} {value:g}" for name, value in data.items())
        show(
            *self._describe(),
            "Nothing is sent, as no interface of Sunrise takes load data. M [kg], X Y Z [mm], A B C [deg], JX JY JZ",
            "[kg m^2] about the principal axes through the centre of mass, all seen from the flange:",
            "1. Enter them in Sunrise.Workbench, object templates, as load data of the tool at the flange.",
            "2. Synchronize the project, and attach this tool to the flange in the application.",
            f"3. At rest in the home posture {robot.home.round(3).tolist()} [rad], this load leaves external torques",
            f"   of at most {torques.round(2).tolist()} Nm because of its bounds, beside the arm's own errors.",
            f"4. Sunrise's validateForImpedanceMode fails above {_SUNRISE_LIMIT:g} Nm in an axis: this load alone "
            f"{'does not fail it' if torques.max() < _SUNRISE_LIMIT else 'MAY FAIL IT: narrow its bounds'}.",
        )
        return ExitStatus.OK


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
