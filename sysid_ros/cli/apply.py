"""Gives the payload of a result to a running system, and reads it back: ``sysid apply ur results/... --robot-ip ...``.

Nothing is sent before it was shown. What counts is what the running system says afterwards, not that it was sent.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.terminal import show, working
from sysid_ros.core.common.errors import MISSING, ParameterOutOfRange, SysidError
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.universal_robots import SETTLE, ControllerPayload, RtdeClient, send_payload
from sysid_ros.reports.exported import ExportedPayload, read_exported
from sysid_ros.reports.folders import unusable_result
from sysid_ros.reports.payload_files import Load, describe_load, find_well_known, ur_target_payload
from sysid_ros.reports.writer import MOVEIT

MASS, COM, INERTIA = 1e-3, 1e-4, 1e-4
"""Largest differences of a payload that was read back [kg], [m], [kg m^2]."""
_UR_CURE = "they come with Universal Robots' driver, ros-<distribution>-ur-msgs; without ROS there is: sysid apply ur"
_MOVEIT_CURE = "they come with MoveIt, ros-<distribution>-moveit-msgs"


class NotConfirmed(SysidError):
    """Something was sent, and the running system does not say that it has it."""

    is_outcome = True

    def __init__(self, text: str):
        super().__init__("not confirmed", text)


def run(options: argparse.Namespace) -> int:
    """Show, send and read back; return the exit status.

    Raises:
        SysidError: The result cannot be used, or the system cannot be reached.
    """
    exported = read_exported(options.folder, options.accept_uncertain)
    if options.command == "moveit":
        return _apply_moveit(options, exported)
    return _apply_ur(options, exported)


def _apply_ur(options: argparse.Namespace, exported: ExportedPayload) -> int:
    load = Load.from_summary(exported.behind_flange)
    has_inertia = Quantity.INERTIA in find_well_known(exported.behind_flange)
    call = ur_target_payload(load, has_inertia)
    where = options.robot_ip or options.service
    show(f"For {where}: tool (nominal) and payload of {exported.robot}, identified {exported.created}")
    show(f"seen from the tool flange, for which the URDF link '{load.frame}' is taken:")
    show(*(f"  {line}" for line in describe_load(load)))
    if not has_inertia:
        show("  the inertia is left out, and a controller takes zero for it")
    show(f"As: {call if options.command == 'ur' else options.service}")
    if options.dry_run:
        return ExitStatus.OK
    send = _sender(options, load, has_inertia, call)
    if options.robot_ip is None:
        _confirm(options)
        send()
        show("The driver says that it was set. It was not read back.")
        return ExitStatus.OK
    with RtdeClient(options.robot_ip, options.rtde_port) as client:
        before = client.read()
        show(f"It has now: {_describe(before)}")
        if not before.is_at_rest:
            raise ArmError(
                f"the controller at {options.robot_ip}",
                f"the arm moves ({before.speed:.2g} rad/s), and a payload is set at rest; nothing was sent",
            )
        _confirm(options)
        sent_inertia = send()
        try:
            found, different = _read_back(client, load, sent_inertia)
        except ArmError as error:
            raise NotConfirmed(f"{options.robot_ip} was given it and says nothing ({error})") from error
    show(f"Read back:  {_describe(found)}")
    if different:
        raise NotConfirmed(f"{options.robot_ip} does not have what was sent: {'; '.join(different)}. {_ADVICE}")
    if has_inertia and not sent_inertia:
        show("note: the messages of this driver have no inertia; it was left out")
    if sent_inertia and found.inertia is None:
        show("note: the software of this controller does not report the inertia; it was not compared")
    show(f"Confirmed, within {1e3 * MASS:g} g, {1e3 * COM:g} mm and {INERTIA:g} kg m^2.")
    return ExitStatus.OK


_ADVICE = (
    "Is it under remote control, is the load within what it allows, and does no program set another payload? "
    "Its log says why it refused"
)


def _describe(payload: ControllerPayload) -> str:
    com = ", ".join(f"{value:.4f}" for value in payload.com)
    inertia = "" if payload.inertia is None else f", inertia [{', '.join(f'{v:.5f}' for v in payload.inertia)}] kg m^2"
    return f"{payload.mass:.3f} kg at [{com}] m{inertia}"


def _read_back(client: RtdeClient, load: Load, has_inertia: bool) -> tuple[ControllerPayload, list[str]]:
    """Return what the controller has, and how it differs, as soon as it does not or the time is over."""
    end = time.monotonic() + SETTLE
    with working("reading it back"):
        while True:
            found = client.latest()
            different = compare_payload(load, has_inertia, found)
            if not different or time.monotonic() > end:
                return found, different


def compare_payload(load: Load, has_inertia: bool, found: ControllerPayload) -> list[str]:
    """Return how the payload of a controller differs from what was sent, a few words each.

    Args:
        load: What was sent.
        has_inertia: Whether its inertia was sent, too.
        found: What the controller reports.
    """
    i = load.inertia_com
    tensor = np.array([i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]])
    off = {
        "mass [kg]": (abs(found.mass - load.mass), MASS),
        "centre of gravity [m]": (np.abs(found.com - load.com).max(), COM),
    }
    if has_inertia and found.inertia is not None:
        off["inertia [kg m^2]"] = (np.abs(found.inertia - tensor).max(), INERTIA)
    # what is no number is a difference
    return [f"{name} differs by {value:.3g}" for name, (value, largest) in off.items() if not value <= largest]


def _sender(options: argparse.Namespace, load: Load, has_inertia: bool, call: str) -> Callable[[], bool]:
    """Return what sends a payload and returns whether its inertia was among it."""
    if options.command == "ur":

        def run_script() -> bool:
            send_payload(options.robot_ip, call, options.script_port)
            return has_inertia

        return run_script
    from sysid_ros.ros.services import ServiceCaller, service_type, set_ur_payload
    from sysid_ros.ros.waiting import ServiceFailed

    kind, inertia = service_type("ur_msgs", "SetPayload", _UR_CURE), load.inertia_com if has_inertia else None

    def call_driver() -> bool:
        with working(f"calling {options.service}"), ServiceCaller() as caller:
            try:
                return set_ur_payload(caller, kind, options.service, load.mass, load.com, inertia)
            except ServiceFailed as error:
                raise NotConfirmed(f"the driver did not say that it was set ({error})") from error

    return call_driver


def _apply_moveit(options: argparse.Namespace, exported: ExportedPayload) -> int:
    path = exported.path.with_name(MOVEIT)
    scene, fields = read_scene(path)
    thing = _mapping(fields["object"])
    name, link = str(thing["id"]), str(fields["link_name"])
    show(f"For MoveIt's planning scene: the payload of {exported.robot}, identified {exported.created}")
    show(f"'{name}' attached to link '{link}', {float(str(fields['weight'])):.3f} kg, as {path.name} has it:")
    for shape, pose in zip(_list(thing.get("primitives")), _list(thing.get("primitive_poses")), strict=False):
        show(f"  primitive of type {shape['type']}, dimensions {shape['dimensions']} m, at {pose['position']} m")
    if options.dry_run:
        return ExitStatus.OK
    from sysid_ros.ros.moveit import fill_message
    from sysid_ros.ros.services import ServiceCaller, apply_scene, compare_attached, read_attached, service_type
    from sysid_ros.ros.waiting import ServiceFailed

    kinds = [service_type("moveit_msgs", one, _MOVEIT_CURE) for one in ("ApplyPlanningScene", "GetPlanningScene")]
    prefix = "/" + options.namespace.strip("/") if options.namespace.strip("/") else ""
    where = f"{prefix}/get_planning_scene"
    _confirm(options)
    with working("calling MoveIt"), ServiceCaller() as caller:
        try:
            apply_scene(caller, kinds[0], f"{prefix}/apply_planning_scene", scene)
            found = read_attached(caller, kinds[1], where, name)
        except ServiceFailed as error:
            raise NotConfirmed(f"MoveIt did not say that it has it ({error})") from error
    if found is None:
        raise NotConfirmed(f"{where} has no attached object '{name}'; see the log of move_group")
    different = compare_attached(fill_message(type(found)(), fields), found)
    if different:
        raise NotConfirmed(f"{where} does not have what was sent: {'; '.join(different)}")
    if found.weight == 0.0:
        show("note: MoveIt keeps no weight of attached objects; give it to the robot's controller, too")
    show("Confirmed: link, links that may be touched, shapes and places (within 0.1 mm and 1 mrad).")
    return ExitStatus.OK


def read_scene(path: Path) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return the planning scene of ``payload_moveit.yaml``, and the fields of its attached object.

    Raises:
        SysidError: The file is missing, or does not attach exactly one object, in the frame of its link.
    """
    if not path.is_file():
        raise unusable_result(path, "missing; the report says why it was not written")
    try:
        scene = _mapping(_mapping(read_yaml(path))["planning_scene"])
        (fields,) = _list(_mapping(scene["robot_state"])["attached_collision_objects"])
        thing = _mapping(fields["object"])
        frame, link = _mapping(thing["header"])["frame_id"], fields["link_name"]
        needed = [thing["id"], fields["weight"]]
    except (KeyError, TypeError, ValueError) as error:
        raise unusable_result(path, f"without a planning scene that attaches one object ({error!r})") from error
    if frame != link or None in needed:
        raise unusable_result(path, f"the object is in frame '{frame}', and must be in that of its link, '{link}'")
    return scene, fields


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is no mapping")
    return value


def _list(value: object) -> list[Mapping]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _confirm(options: argparse.Namespace) -> None:
    """Ask whether to send; end where the answer is no."""
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise ParameterOutOfRange("--yes", MISSING, "it, where nobody can be asked")
    if input("Send it? [y/N] ").strip().lower() not in ("y", "yes"):
        print("Nothing was sent.")
        raise KeyboardInterrupt
