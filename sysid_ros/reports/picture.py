"""Pictures of the arm and the bounds of its payload, as SVG; the script of the page turns them with the pointer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.inertia import compute_inertia_ellipsoid, is_physically_consistent
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.robot import RobotModel, tool_transform
from sysid_ros.reports.payload import exported_payload, summarize_payload
from sysid_ros.reports.result import IdentificationResult

Array = NDArray[np.float64]

VIEW = (np.radians(-60.0), np.radians(18.0))
"""Azimuth and elevation of the eye [rad]."""
SIZE = (480.0, 340.0)
"""Width and height [page units]."""
_EDGES = tuple((a, a | bit) for bit in (1, 2, 4) for a in range(8) if not a & bit)
"""Corners of a box that differ in one coordinate."""
_FACES = ((0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5))
_AROUND = 40


def arm_pictures(result: IdentificationResult) -> str | None:
    """Return the arm where it was last with the box of the CoM, and its tool frame enlarged.

    None where there is no usable estimate, or the CoM is not bounded.
    """
    if not result.is_usable:
        return None
    robot, tool = result.robot, summarize_payload(result, result.robot.tool_frame)
    if not tool.com.is_bounded:
        return None
    samples = result.samples
    q = robot.home if samples is None or len(samples) == 0 else samples.q[-1]
    rotations, origins = BodyPoses(robot).compute(q)
    turned, moved = tool_transform(robot)
    rotation, origin = rotations[-1] @ turned, origins[-1] + rotations[-1] @ moved

    whole = _Picture()
    whole.add_arm(robot, rotations, origins, "arm", is_last_only=False)
    whole.add_box(tool.com.lower, tool.com.upper, rotation, origin, "com")
    whole.add_axes(np.eye(3), np.zeros(3), 0.15)
    near = _Picture()
    near.add_box(tool.com.lower, tool.com.upper, rotation, origin, "com")
    shape = robot.payload_prior.shape
    if shape is not None:
        near.add_box(shape.com.lower, shape.com.upper, rotations[-1], origins[-1], "prior")
    body = exported_payload(result.robot, result.estimate).values
    if is_physically_consistent(body):
        ellipsoid = compute_inertia_ellipsoid(body)
        center = origins[-1] + rotations[-1] @ ellipsoid.center
        near.add_ellipsoid(center, rotations[-1] @ ellipsoid.rotation, ellipsoid.semi_axes)
    near.add_dot(origin + rotation @ tool.com.values, "estimate")
    truth = result.truth if result.estimate.target == "payload" else None
    if truth is not None and truth[0] > 0.0:
        near.add_dot(origins[-1] + rotations[-1] @ (truth[1:4] / truth[0]), "truth")
    middle, reach = near.extent()
    near.add_axes(rotation, origin, 0.4 * reach)
    near.add_arm(robot, rotations, origins, "hand", is_last_only=True)
    pictures = [
        whole.svg("The arm at the end of its motion, with the box of the centre of mass", *whole.extent()),
        near.svg("The tool frame and the box of the centre of mass, enlarged", middle, reach),
    ]
    size = " × ".join(f"{width:.0f}" for width in 1e3 * tool.com.width)
    items = [
        ("com", f"where the centre of mass lies, {size} mm along the axes of the tool frame"),
        ("estimate", "point estimate"),
        ("body", "inertia ellipsoid of the body in the files"),
    ]
    if shape is not None:
        items.append(("prior", "where it could have been before"))
    if truth is not None and truth[0] > 0.0:
        items.append(("truth", "truth (simulation)"))
    legend = "".join(f'<li><i class="mark {css}"></i>{escape(text)}</li>' for css, text in items)
    drawn = "".join(pictures)
    return (
        f'<div class="plots" style="--cell:400px"><ul class="legend">{legend}</ul><div class="grid">{drawn}</div></div>'
    )


@dataclass(frozen=True)
class _Part:
    """A shape of a picture: ``circle``, ``text``, ``polyline`` or ``polygon`` through points (N, 3) [m]."""

    tag: str
    css: str
    points: Array
    radius: float = 0.0
    text: str = ""


class _Picture:
    """Shapes in space, in the base frame, that are drawn from behind to the front."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def _add(self, tag: str, css: str, points: ArrayLike, radius: float = 0.0, text: str = "") -> None:
        self._parts.append(_Part(tag, css, np.asarray(points, dtype=float).reshape(-1, 3), radius, text))

    def add_arm(self, robot: RobotModel, rotations: Array, origins: Array, css: str, is_last_only: bool) -> None:
        """Add the collision spheres of the arm, or of its last body alone; without any a line through the joints."""
        for sphere in robot.spheres:
            if sphere.body == robot.n or not is_last_only:
                center = origins[sphere.body] + rotations[sphere.body] @ sphere.center
                self._add("circle", css, center, sphere.radius)
        if not robot.spheres and not is_last_only:
            self._add("polyline", f"bone {css}", origins)

    def add_box(self, lower: Array, upper: Array, rotation: Array, origin: Array, css: str) -> None:
        """Add a box [m] of a frame that has a pose; the one of the CoM has faces."""
        corners = origin + np.array(list(product(*zip(lower, upper, strict=True)))) @ rotation.T
        for face in _FACES if css == "com" else ():
            self._add("polygon", f"{css} face", corners[list(face)])
        for a, b in _EDGES:
            self._add("polyline", f"{css} edge", corners[[a, b]])

    def add_ellipsoid(self, center: Array, rotation: Array, semi_axes: Array) -> None:
        """Add the three principal sections of an ellipsoid."""
        angle = np.linspace(0.0, 2.0 * np.pi, _AROUND + 1)
        circle = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)])
        for k in range(3):
            section = np.roll(circle, k, axis=0) * semi_axes[:, None]
            self._add("polyline", "body edge", center + (rotation @ section).T)

    def add_dot(self, center: Array, css: str) -> None:
        """Add a dot of a size that does not depend on the scale."""
        self._add("circle", f"{css} dot", center)

    def add_axes(self, rotation: Array, origin: Array, length: float) -> None:
        """Add the axes of a frame with their names."""
        for k, name in enumerate("xyz"):
            self._add("polyline", f"axis {name}", [origin, origin + length * rotation[:, k]])
            self._add("text", f"axis {name}", origin + 1.15 * length * rotation[:, k], text=name)

    def extent(self) -> tuple[Array, float]:
        """Return the middle of all points, and how far they reach from it [m]."""
        points = np.concatenate([part.points for part in self._parts])
        middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
        return middle, float(np.linalg.norm(points - middle, axis=1).max())

    def svg(self, description: str, center: Array, reach: float) -> str:
        """Return the picture; it shows everything within ``reach`` [m] of the centre (3,) [m]."""
        scale = 0.52 * min(SIZE) / max(reach, 1e-3)
        drawn = []
        for index, part in enumerate(self._parts):
            flat, depth = project(part.points - center)
            places = 0.5 * np.array(SIZE) + scale * flat * [1.0, -1.0]
            # Circles stand for the arm, which hides nothing of the payload.
            order = float(depth.max()) + (0.0 if part.tag == "circle" and part.radius else 10.0)
            drawn.append((order, _element(index, part, places, scale * part.radius)))
        shapes = "".join(text for _, text in sorted(drawn, key=lambda one: one[0]))
        data: dict[str, object] = {"parts": [np.round(part.points, 4).tolist() for part in self._parts]}
        data |= {"scale": round(scale, 3), "center": np.round(center, 4).tolist(), "view": list(VIEW)}
        attributes = f'role="img" aria-label="{escape(description)}" class="picture" '
        attributes += f'viewBox="0 0 {SIZE[0]:g} {SIZE[1]:g}" data-picture="{escape(json.dumps(data))}"'
        return f"<svg {attributes}>{shapes}</svg>"


def _element(index: int, part: _Part, places: Array, radius: float) -> str:
    x, y = places[0]
    common = f'data-part="{index}" class="{part.css}"'
    if part.tag == "circle":
        return f'<circle {common} cx="{x:.1f}" cy="{y:.1f}" r="{radius or 4.5:.1f}"/>'
    if part.tag == "text":
        return f'<text {common} x="{x:.1f}" y="{y:.1f}">{escape(part.text)}</text>'
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    return f'<{part.tag} {common} points="{points}"/>'


def project(points: Array) -> tuple[Array, Array]:
    """Project points (N, 3) to right and up (N, 2), and give how near to the eye they are, (N,), all [m]."""
    azimuth, elevation = VIEW
    x, y, z = points.T
    right = -np.sin(azimuth) * x + np.cos(azimuth) * y
    ahead = np.cos(azimuth) * x + np.sin(azimuth) * y
    up = np.cos(elevation) * z - np.sin(elevation) * ahead
    return np.stack([right, up], axis=1), np.cos(elevation) * ahead + np.sin(elevation) * z
