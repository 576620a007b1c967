"""Collision spheres: read from settings, or laid over the simple shapes of a URDF."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.model.robot import RobotModel, Sphere
from sysid_ros.core.model.settings import Section

_LENGTH_MAX = 10.0  # [m]


def read_sphere_rows(settings: Section, key: str) -> list[NDArray[np.float64]]:
    """Read rows ``[x, y, z, radius]`` [m] of a setting that may be absent.

    Raises:
        ParameterOutOfRange: A row has not four numbers, or a radius is not above zero.
    """
    rows = settings.rows(key, 4, "m", -_LENGTH_MAX, _LENGTH_MAX, default=[])
    for index, row in enumerate(rows):
        if row[3] <= 0.0:
            raise ParameterOutOfRange(f"{settings.path}.{key}[{index}][3]", float(row[3]), "a radius above 0 [m]")
    return rows


def cover_cylinder(radius: float, length: float) -> list[NDArray[np.float64]]:
    """Cover a cylinder about the z axis, centred at the origin, with spheres, rows ``[x, y, z, radius]`` [m].

    Each covers one slice, ``R^2 = r^2 + (slice/2)^2``; there are as many as keep R below 1.25 r.
    """
    half_slice = radius * math.sqrt(1.25**2 - 1.0)  # spheres may be a quarter larger than the cylinder they cover
    count = max(1, math.ceil(0.5 * length / half_slice - 1e-9))
    half = 0.5 * length / count
    size = math.nextafter(math.hypot(radius, half), math.inf)
    return [np.array([0.0, 0.0, -0.5 * length + (2 * i + 1) * half, size]) for i in range(count)]


def cover_box(size: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Cover a box centred at the origin with spheres, about one per cube of its second shortest edge.

    ``size`` (3,) has its edges [m]; the result has rows ``[x, y, z, radius]`` [m].
    """
    edge = float(np.sort(size)[1])
    counts = np.maximum(1, np.rint(np.asarray(size) / edge)).astype(int)
    cell = np.asarray(size) / counts
    radius = math.nextafter(0.5 * float(np.linalg.norm(cell)), math.inf)
    indices = np.stack(np.meshgrid(*[np.arange(count) for count in counts], indexing="ij"), axis=-1).reshape(-1, 3)
    centers = (indices + 0.5) * cell - 0.5 * np.asarray(size)
    return [np.array([*center, radius]) for center in centers]


def cover_links(urdf_text: str) -> dict[str, list[list[float]]]:
    """Cover the simple shapes of every link with spheres: its collision shapes, or else its visual ones.

    Meshes are ignored, so a link with nothing else gets no spheres.

    Returns:
        Rows ``[x, y, z, radius]`` [m] in the frame of the link, for each link with spheres.
    """
    result: dict[str, list[list[float]]] = {}
    for link, shapes in shapes_of_links(urdf_text).items():
        rows = [row for shape in shapes for row in _cover_shape(shape)]
        if rows:
            result[link] = rows
    return result


def links_without_spheres(robot: RobotModel) -> tuple[str, ...]:
    """List the links not known to be covered by spheres, moving ones first.

    Spheres cover a link if they bear its name, or if all its shapes are simple ones with their middles in spheres of
    the same body. A link without shapes needs none, unless it alone stands for a body that has mass.
    """
    named = {sphere.link for sphere in robot.spheres}
    shapes = shapes_of_links(robot.urdf)
    links = [frame for frame in robot.pin_model.frames if frame.type == pin.FrameType.BODY]
    found: dict[str, int] = {}
    for link in links:
        own = [sphere for sphere in robot.spheres if sphere.body == link.parentJoint]
        is_inside = all(_is_inside(shape, link.placement, own) for shape in shapes.get(link.name, []))
        if link.name not in named and not is_inside:
            found[link.name] = link.parentJoint
    seen = {sphere.body for sphere in robot.spheres} | set(found.values())
    for body in range(1, robot.n + 1):
        if body not in seen and robot.pin_model.inertias[body].mass > 0.0:
            found[next(link.name for link in links if link.parentJoint == body)] = body
    return tuple(sorted(found, key=lambda name: (found[name] == 0, found[name])))


def shapes_of_links(urdf_text: str) -> dict[str, list[ET.Element]]:
    """Return the collision shapes of every link, or its visual ones where it has none."""
    links = ET.fromstring(urdf_text).findall("link") if urdf_text else []
    return {link.get("name", ""): link.findall("collision") or link.findall("visual") for link in links}


def _is_inside(shape: ET.Element, placement: pin.SE3, spheres: Sequence[Sphere]) -> bool:
    """Test whether the middles of a simple shape lie in spheres of its body; a mesh is never known to."""
    rows = _cover_shape(shape)
    middles = [placement.act(np.array(row[:3])) for row in rows]
    return bool(rows) and all(any(np.linalg.norm(p - s.center) < s.radius for s in spheres) for p in middles)


def placement_of(shape: ET.Element) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rotation (3, 3) and position (3,) [m] of a ``<visual>`` or ``<collision>`` in the frame of its link."""
    origin = shape.find("origin")
    attributes = {} if origin is None else origin.attrib
    xyz, rpy = (np.array([float(word) for word in (attributes.get(key) or "0 0 0").split()]) for key in ("xyz", "rpy"))
    return rotation_from_rpy(rpy), xyz


def form_of(shape: ET.Element) -> tuple[str, NDArray[np.float64]]:
    """Return the tag of a simple shape's form and half the edges of the box around it, (3,) [m]; "" for a mesh."""
    form = shape.find("geometry/*")
    if form is None or form.tag not in ("sphere", "cylinder", "box"):
        return "", np.zeros(3)
    if form.tag == "box":
        return form.tag, 0.5 * np.array([float(word) for word in form.get("size", "0 0 0").split()])
    radius = float(form.get("radius", "0"))
    return form.tag, np.array(
        [radius, radius, radius if form.tag == "sphere" else 0.5 * float(form.get("length", "0"))]
    )


def _cover_shape(shape: ET.Element) -> list[list[float]]:
    (rotation, center), (tag, half) = placement_of(shape), form_of(shape)
    if not tag:
        return []
    if tag == "sphere":
        rows = [np.array([0.0, 0.0, 0.0, half[0]])]
    else:
        rows = cover_cylinder(half[0], 2.0 * half[2]) if tag == "cylinder" else cover_box(2.0 * half)
    return [[*(rotation @ row[:3] + center).tolist(), float(row[3])] for row in rows]
