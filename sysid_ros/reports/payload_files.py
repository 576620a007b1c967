"""A payload as others take it: as a link of a URDF, in files and calls of vendors, and for simulators."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import permutations
from xml.etree import ElementTree

import numpy as np
import pinocchio as pin
import yaml
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.model import inertia
from sysid_ros.core.model.urdf import parameters_of, read_urdf
from sysid_ros.reports.payload import Bounded, PayloadSummary

PAYLOAD_LINK = "identified_payload"
TENSOR = {"xx": (0, 0), "xy": (0, 1), "xz": (0, 2), "yy": (1, 1), "yz": (1, 2), "zz": (2, 2)}
"""Places of the entries of an inertia tensor, by axes."""


def add_payload(
    urdf: str, parent: str, payload: ArrayLike, link: str = PAYLOAD_LINK, comment: str | None = None
) -> str:
    """Add a payload as a link fixed to another; everything else stays as it is, byte for byte.

    Args:
        urdf: Robot description.
        parent: Link the payload is fixed to; the frames coincide.
        payload: Ten parameters about the frame of ``parent``, (10,).
        link: Name of the new link; its joint is called ``<link>_joint``.
        comment: One line for the reader of the file.

    Raises:
        NotPhysicallyConsistent: No body can have these parameters.
        SysidError: The description is not XML, has no such parent or has the new names already; or what was
            written does not read back as the same payload.
    """
    inertia.require_physically_consistent(payload, link)
    _require_names(urdf, parent, link)
    body = Load(*inertia.to_com_form(payload), parent)
    element = _fill("payload_link.urdf", prefix="", link=link, parent=parent, tool=body)
    snippet = f"\n  <!-- {(comment or 'identified payload').replace('--', '- -')} -->\n{element}"
    position = urdf.rindex("</robot>")
    text = urdf[:position].rstrip() + "\n" + snippet + urdf[position:]
    _require_reads_back(text, link, np.asarray(payload, dtype=float))
    return text


def _unwritable(reason: str) -> SysidError:
    return SysidError("cannot write the payload into the URDF", reason)


def _require_names(urdf: str, parent: str, link: str) -> None:
    try:
        root = ElementTree.fromstring(urdf)
    except ElementTree.ParseError as error:
        raise _unwritable(f"the robot description is not XML ({error})") from error
    links = [element.get("name") for element in root.findall("link")]
    if parent not in links:
        raise _unwritable(f"link '{parent}' is unknown; there are {', '.join(map(str, links))}")
    for kind, name in (("link", link), ("joint", f"{link}_joint")):
        if any(element.get("name") == name for element in root.findall(kind)):
            raise _unwritable(f"it has a {kind} '{name}' already; choose another name")


def _require_reads_back(text: str, link: str, payload: np.ndarray) -> None:
    theta = parameters_of(read_urdf(text, snap_angles=False).robot.link_map[link])
    model = pin.buildModelFromXML(text)
    frame = model.frames[model.getFrameId(f"{link}_joint")]
    for seen in (theta, frame.inertia.toDynamicParameters()):
        if not np.allclose(seen, payload, rtol=1e-9, atol=1e-12):
            raise _unwritable(f"it reads back as {seen.tolist()} instead of {payload.tolist()}")


Array = NDArray[np.float64]

DIGITS = 12
"""Significant digits of numbers without bounds: digits beyond are rounding of the computation."""


_EDGE = 0.1
"""Of the smallest eigenvalue of the pseudo-inertia, rounding leaves at least this share [-]: zero is no body."""


@dataclass(frozen=True)
class Load:
    """A rigid load in one frame.

    Attributes:
        mass: Mass [kg].
        com: Centre of mass, (3,) [m].
        inertia_com: Inertia about the centre of mass, axes of the frame, (3, 3) [kg m^2].
        frame: Name of the frame.
        bounds: The same with bounds, not rounded; None where there are none.
    """

    mass: float
    com: Array
    inertia_com: Array
    frame: str
    bounds: PayloadSummary | None = None

    @classmethod
    def from_parameters(cls, theta: ArrayLike, frame: str) -> Load:
        """Make a load from its ten parameters about the frame's origin, (10,).

        Raises:
            NotPhysicallyConsistent: No body can have these parameters.
        """
        inertia.require_physically_consistent(theta, f"load at {frame}")
        return cls(*inertia.to_com_form(theta), frame)

    @classmethod
    def from_summary(cls, summary: PayloadSummary) -> Load:
        """Return the body of a payload in the digits that its bounds support, with its bounds.

        What is rounded is still a body, and inside all bounds.

        Raises:
            NotPhysicallyConsistent: No body can have these parameters.
        """
        exact, upper = cls.from_parameters(summary.parameters.values, summary.frame), np.triu_indices(3)

        def build(values: Array) -> Load:
            tensor = np.empty((3, 3))
            tensor[upper] = tensor.T[upper] = values[4:]
            return cls(float(values[0]), values[1:4], tensor, summary.frame, summary)

        values = np.concatenate([[exact.mass], exact.com, exact.inertia_com[upper]])
        widths = np.concatenate([[summary.mass.width], summary.com.width, summary.inertia_com.width[upper]])
        return build(round_supported(values, 0.5 * widths, lambda rounded: _is_kept(build(rounded), exact)))

    @property
    def parameters(self) -> Array:
        """Ten parameters about the frame's origin, (10,)."""
        return inertia.from_com_form(self.mass, self.com, self.inertia_com)

    @property
    def entries(self) -> Array:
        """Inertia as [Ixx, Iyy, Izz, Ixy, Ixz, Iyz] about the centre of mass, (6,) [kg m^2]."""
        return np.array([self.inertia_com[TENSOR[axes]] for axes in ("xx", "yy", "zz", "xy", "xz", "yz")])


def _is_kept(rounded: Load, exact: Load) -> bool:
    """Return whether a rounded load is within its bounds, a body, and not much nearer to being none than before.

    A value on its bound may have been beyond it by the rounding of another frame; no more is asked of it then.
    """
    least = [np.linalg.eigvalsh(inertia.pseudo_inertia(load.parameters))[0] for load in (exact, rounded)]
    names = () if rounded.bounds is None else ("mass", "com", "inertia_com", "parameters")
    return bool(least[1] > _EDGE * least[0]) and all(
        np.all(bounded.contains(getattr(rounded, name)) | ~bounded.contains(getattr(exact, name)))
        for name, bounded in ((name, getattr(rounded.bounds, name)) for name in names)
    )


def decimals(value: float, half_width: float) -> int:
    """Return the decimals that bounds of a half width support: down to a tenth of its leading digit.

    An unbounded value gets two digits of its own.
    """
    size = half_width if np.isfinite(half_width) else abs(value)
    return 1 - int(np.floor(np.log10(size))) if size > 10.0**-DIGITS else DIGITS


def round_supported(values: Array, half_widths: Array, is_kept: Callable[[Array], bool]) -> Array:
    """Round values to the digits that their bounds support; all to more where what must be kept is lost otherwise.

    Args:
        values: (K,).
        half_widths: Half of the width of the bounds of each, (K,).
        is_kept: Whether rounded values (K,) keep what must be kept; the given ones do.
    """
    places = [decimals(value, width) for value, width in zip(values, half_widths, strict=True)]
    for more in range(DIGITS):
        rounded = np.array([round(float(value), place + more) for value, place in zip(values, places, strict=True)])
        if is_kept(rounded):
            return rounded + 0.0
    return values


MASS_KNOWN, MASS_KNOWN_KG = 0.1, 0.05
"""A mass is well known within this share of it [-], or within so much [kg]."""
COM_KNOWN = 0.02
"""A centre of mass is well known within this, along every axis [m]."""
INERTIA_KNOWN = 0.5
"""Inertia is well known where every principal moment is, within this share of the largest one [-]."""
RULE = (
    f"well known: mass within {100 * MASS_KNOWN:g} % or {1e3 * MASS_KNOWN_KG:g} g, centre of mass within "
    f"{1e3 * COM_KNOWN:g} mm along every axis, principal moments within {100 * INERTIA_KNOWN:g} % of the largest"
)


def find_well_known(summary: PayloadSummary) -> frozenset[Quantity]:
    """Return the quantities that are known well enough to be typed into a controller without a second thought."""

    def off(bounded: Bounded) -> float:
        return float(np.max(np.maximum(bounded.upper - bounded.values, bounded.values - bounded.lower)))

    mass, moments = float(summary.mass.values), summary.principal_moments
    is_known = {
        Quantity.MASS: off(summary.mass) <= max(MASS_KNOWN * mass, MASS_KNOWN_KG),
        Quantity.COM: off(summary.com) <= COM_KNOWN,
        Quantity.INERTIA: off(moments) <= INERTIA_KNOWN * float(np.max(moments.values)),
    }
    return frozenset(quantity for quantity, known in is_known.items() if known)


def join_names(quantities: Collection[Quantity]) -> str:
    """Return the names of quantities, in their order, joined by "and"."""
    return " and ".join(quantity.value for quantity in Quantity if quantity in quantities)


def show_bounded(value: float, lower: float, upper: float) -> str:
    """Write a number with what its bounds leave above and below, rounded outwards: ``1.81 +0.34 / -0.32``."""
    if not (np.isfinite(lower) and np.isfinite(upper)):
        return f"{_decimal(value)} (not bounded)"
    place = decimals(value, 0.5 * (upper - lower))
    above, below = (np.ceil(max(room, 0.0) * 10.0**place) / 10.0**place for room in (upper - value, value - lower))
    shown, above, below = (f"{number:.{max(place, 0)}f}" for number in (value, above, below))
    return f"{shown if float(shown) == value else _decimal(value)} +{above} / -{below}"


def describe_load(load: Load) -> list[str]:
    """Return every number of a load with its bounds, a line each, and which are not well known."""
    summary = load.bounds
    if summary is None:
        return []
    rows = [("mass [kg]", load.mass, summary.mass)]
    rows += [(f"centre of mass {axis} [m]", load.com[i], summary.com[i]) for i, axis in enumerate("xyz")]
    rows += [
        (f"I{axes} about the centre of mass [kg m^2]", load.inertia_com[at], summary.inertia_com[at])
        for axes, at in TENSOR.items()
    ]
    lines = [f"{name}: {show_bounded(value, float(one.lower), float(one.upper))}" for name, value, one in rows]
    unknown = [quantity.value for quantity in Quantity if quantity not in find_well_known(summary)]
    if unknown:
        lines.append(f"NOT WELL KNOWN: {', '.join(unknown)} ({RULE})")
    return lines


def kinova_settings(load: Load) -> dict[str, object]:
    """Mass [kg] and centre of mass [m]; Kinova asks for no inertia."""
    return {"mass_kg": number(load.mass), "mass_center_m": dict(zip("xyz", map(number, load.com), strict=True))}


def kuka_load_data(load: Load) -> dict[str, float]:
    """M [kg], X Y Z [mm], A B C [deg], JX JY JZ [kg m^2].

    The principal axes are assigned to X, Y, Z such that they turn as little as possible away from the frame's axes, so
    that a nearly aligned load gets small angles.
    """
    moments, axes = _principal_axes_near_frame(load.inertia_com)
    turned = np.concatenate([kuka_angles(axes), moments])
    if load.bounds is not None:
        turned = _round_principal(load, load.bounds, turned)
    numbers = [load.mass, *(1e3 * load.com), *turned]
    return dict(zip(("M", "X", "Y", "Z", "A", "B", "C", "JX", "JY", "JZ"), map(number, numbers), strict=True))


def _round_principal(load: Load, summary: PayloadSummary, turned: Array) -> Array:
    """Round A, B, C [deg] and the principal moments, (6,), to the digits that the bounds of the inertia support.

    An angle counts as known as far as it turns the inertia by less than the bounds of the moments are apart.
    """
    widths = summary.principal_moments.width[np.argsort(np.argsort(turned[3:]))]
    angle = float(np.degrees(np.max(widths) / max(float(np.ptp(turned[3:])), np.finfo(float).tiny)))

    def is_kept(values: Array) -> bool:
        axes = pin.rpy.rpyToMatrix(np.radians(values[2::-1]))
        return _is_kept(replace(load, inertia_com=axes @ np.diag(values[3:]) @ axes.T), load)

    return round_supported(turned, 0.5 * np.append(np.full(3, min(angle, 90.0)), widths), is_kept)


def kuka_angles(rotation: Array) -> tuple[float, float, float]:
    """Return A, B, C [deg] of a rotation (3, 3): ``Rz(A) Ry(B) Rx(C)``.

    At B = +-90 deg only A and C together count; C is 0 there.
    """
    b = np.arctan2(-rotation[2, 0], np.hypot(rotation[0, 0], rotation[1, 0]))
    if np.hypot(rotation[0, 0], rotation[1, 0]) < 1e-9:
        a, c = np.arctan2(-rotation[0, 1], rotation[1, 1]), 0.0
    else:
        a, c = np.arctan2(rotation[1, 0], rotation[0, 0]), np.arctan2(rotation[2, 1], rotation[2, 2])
    return float(np.degrees(a)), float(np.degrees(b)), float(np.degrees(c))


def ur_target_payload(load: Load, has_inertia: bool = True) -> str:
    """Return the script line ``set_target_payload(m, cog, inertia)``, or without the inertia, for which zero is taken.

    Units kg, m and kg m^2; the inertia is [Ixx, Iyy, Izz, Ixy, Ixz, Iyz] about the centre of mass.
    """
    if not has_inertia:
        return f"set_target_payload({_decimal(load.mass)}, {_decimals(load.com)})"
    return f"set_target_payload({_decimal(load.mass)}, {_decimals(load.com)}, {_decimals(load.entries)})"


def _principal_axes_near_frame(inertia_com: Array) -> tuple[Array, Array]:
    """Principal moments (3,) and axes as columns (3, 3): a right-handed rotation, as near to the identity as can be."""
    moments, axes = np.linalg.eigh(inertia_com)

    def alignment(order: tuple[int, ...]) -> float:  # as a lambda, it takes a third of the time of all type checks
        return float(np.sum(np.abs(np.diag(axes[:, order]))))

    best = max(permutations(range(3)), key=alignment)
    axes = axes[:, best] * np.where(np.diag(axes[:, best]) < 0.0, -1.0, 1.0)
    if np.linalg.det(axes) < 0.0:
        weakest = int(np.argmin(np.abs(np.diag(axes))))
        axes[:, weakest] *= -1.0
    return moments[list(best)], axes


def number(value: float) -> float:
    """Return a float with :data:`DIGITS` significant digits; -0.0 and rounding dust become 0.0."""
    rounded = float(f"{float(value):.{DIGITS}g}")
    return 0.0 if abs(rounded) < 1e-12 else rounded


def numbers(values: ArrayLike) -> list[float]:
    """Return floats as :func:`number` does."""
    return [number(value) for value in np.asarray(values, dtype=float)]


def _decimal(value: float) -> str:
    """As :func:`number`, written without an exponent: robot languages differ in whether they read one."""
    return np.format_float_positional(number(value), trim="0")


def _decimals(values: ArrayLike) -> str:
    return "[" + ", ".join(_decimal(value) for value in np.asarray(values, dtype=float)) + "]"


def _krl(data: dict[str, float]) -> str:
    d = {name: _decimal(value) for name, value in data.items()}
    center = ",".join(f"{name} {d[name]}" for name in ("X", "Y", "Z", "A", "B", "C"))
    return f"{{M {d['M']},CM {{{center}}},J {{X {d['JX']},Y {d['JY']},Z {d['JZ']}}}}}"


def payload_file(name: str, note: str | None = None, **values: Load | Array) -> str:
    """Return the contents of a file for a controller, a simulator or a description of a robot.

    Args:
        name: Name of the file, and of its template in ``reports/templates``.
        note: One line for the reader.
        values: The payload alone at the ``tool`` frame and at the ``flange``, tool and payload at the flange as the
            ``whole``, and ``tool_in_flange``, a transform (4, 4) [m]; each file has the values that it needs.
    """
    return _fill(name, note=note, link=PAYLOAD_LINK, **values)


def _fill(template: str, **values: object) -> str:
    from sysid_ros.reports.pages import render  # templates take a while to load

    made = (kinova_settings, kuka_load_data, ur_target_payload, moveit_blocks, describe_load, number, numbers)
    return render(
        template,
        **{one.__name__: one for one in made},
        krl=_krl,
        tensor=_tensor,
        knows_inertia=lambda load: load.bounds is None or Quantity.INERTIA in find_well_known(load.bounds),
        spaced=lambda values: " ".join(map(repr, numbers(values))),
        noted=_noted,
        as_json=json.dumps,
        commented=lambda lines: "".join(f"# {line}".rstrip() + "\n" for line in lines),
        xml_comment=_xml_comment,
        as_yaml=lambda data: yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=1000),
        **values,
    )


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


def moveit_blocks(payload_at_tool: Load) -> dict[str, object]:
    """Return what MoveIt takes: weight and inertial element, and the message that attaches the payload."""
    mass, com = number(payload_at_tool.mass), numbers(payload_at_tool.com)
    return {
        "attached_collision_object": {"link_name": payload_at_tool.frame, "weight": mass},
        "urdf_inertial": {"origin_xyz": com, "origin_rpy": [0.0, 0.0, 0.0], "mass": mass, **_tensor(payload_at_tool)},
        "planning_scene": planning_scene(payload_at_tool),
    }


def _tensor(load: Load) -> dict[str, float]:
    return {f"i{axes}": number(load.inertia_com[at]) for axes, at in TENSOR.items()}


def _noted(note: str | None) -> list[str]:
    """Return the first lines of a header: a note, if there is one, and an empty line."""
    return [note, ""] if note else []


def _xml_comment(load: Load, note: str | None) -> str:
    lines = [*_noted(note), f"In the frame of the URDF link '{load.frame}'; kg, m, kg m^2 about the centre of mass."]
    text = "\n  ".join([*lines, *describe_load(load)]).replace("--", "- -")
    return f"<!--\n  {text}\n-->"
