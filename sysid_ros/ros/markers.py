"""RViz markers of the suite, all in the base frame of the arm."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, Pose, Quaternion, Vector3
from numpy.typing import ArrayLike, NDArray
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.inertia import compute_inertia_ellipsoid, is_physically_consistent

Array = NDArray[np.float64]

COLORS = {
    "arm": (0.55, 0.6, 0.68, 0.35),
    "plan": (0.1, 0.55, 0.9, 0.9),
    "payload": (0.95, 0.55, 0.1, 0.6),
    "com": (0.85, 0.1, 0.1, 1.0),
    "com_bounds": (0.85, 0.1, 0.1, 0.25),
    "text": (1.0, 1.0, 1.0, 0.95),
    "carried": (0.95, 0.55, 0.1, 0.3),
    "obstacles": (0.75, 0.35, 0.3, 0.6),
    "obstacles_unknown": (0.9, 0.1, 0.1, 0.9),
    "ground": (0.45, 0.45, 0.42, 0.5),
    "scene_text": (1.0, 1.0, 1.0, 0.95),
    "next_plan": (0.3, 0.85, 0.75, 0.7),
    "swept": (0.1, 0.55, 0.9, 0.05),
    "closest": (0.95, 0.2, 0.5, 1.0),
    "closest_text": (1.0, 0.6, 0.75, 1.0),
    "margins": (1.0, 1.0, 1.0, 0.95),
}
"""Colour of each namespace of markers: red, green, blue, opacity."""
COM_DIAMETER = 0.015
PATH_WIDTH = 0.006
TEXT_HEIGHT = 0.04
LEAST_SIZE = 1e-4
"""RViz draws nothing that has no size [m]."""


class MarkerBuilder:
    """Collects markers; the array it builds replaces everything published before.

    Args:
        frame: Frame of all markers: the base frame of the arm.
        stamp: Their stamp.
    """

    def __init__(self, frame: str, stamp: Time):
        self._header = Header(frame_id=frame, stamp=stamp)
        self._markers = [Marker(header=self._header, action=Marker.DELETEALL)]

    def array(self) -> MarkerArray:
        """All markers so far."""
        return MarkerArray(markers=self._markers)

    def add_sphere(self, namespace: str, center: ArrayLike, radius: float) -> None:
        """Add a sphere at center (3,) [m] with a radius [m]."""
        self._add(namespace, Marker.SPHERE, center, np.eye(3), np.full(3, 2.0 * radius))

    def add_path(self, namespace: str, points: ArrayLike) -> None:
        """Add a line through points (N, 3) [m]."""
        marker = self._add(namespace, Marker.LINE_STRIP, np.zeros(3), np.eye(3), [PATH_WIDTH, 0.0, 0.0])
        marker.points = [_point(point) for point in np.asarray(points, dtype=float)]

    def add_spheres(self, namespace: str, centers: ArrayLike, radius: float) -> None:
        """Spheres of one radius [m] at centers (N, 3) [m], as one marker."""
        marker = self._add(namespace, Marker.SPHERE_LIST, np.zeros(3), np.eye(3), np.full(3, 2.0 * radius))
        marker.points = [_point(point) for point in np.asarray(centers, dtype=float)]

    def add_box(self, namespace: str, center: ArrayLike, size: ArrayLike, rotation: ArrayLike | None = None) -> None:
        """Add a box at center (3,) [m] with edges (3,) [m]; the columns of the rotation (3, 3) are its axes."""
        turned = np.eye(3) if rotation is None else rotation
        self._add(namespace, Marker.CUBE, center, turned, np.maximum(size, LEAST_SIZE))

    def add_text(self, namespace: str, position: ArrayLike, text: str, height: float = TEXT_HEIGHT) -> None:
        """Text that faces the viewer, its middle at position (3,) [m], with letters of a height [m]."""
        marker = self._add(namespace, Marker.TEXT_VIEW_FACING, position, np.eye(3), [0.0, 0.0, height])
        marker.text = text

    def add_payload(self, estimate: ParameterEstimate, rotation: ArrayLike, origin: ArrayLike) -> None:
        """Add the payload: inertia ellipsoid, CoM, the box its CoM certainly lies in, and its mass in words.

        Args:
            estimate: The estimate.
            rotation: (3, 3) rotation of the frame of the last joint in the base frame.
            origin: (3,) its origin [m].
        """
        rotation, origin = np.asarray(rotation, dtype=float), np.asarray(origin, dtype=float)
        lower, upper = com_bounds(estimate)
        if np.all(np.isfinite(lower) & np.isfinite(upper)):
            middle = origin + rotation @ (0.5 * (lower + upper))
            self._add("com_bounds", Marker.CUBE, middle, rotation, np.maximum(upper - lower, LEAST_SIZE))
        if not (np.all(np.isfinite(estimate.values)) and is_physically_consistent(estimate.values)):
            return  # no point estimate yet, or one on the border of what a body can be
        ellipsoid = compute_inertia_ellipsoid(estimate.values)
        center = origin + rotation @ ellipsoid.center
        # A sphere marker with three different diameters is drawn as an ellipsoid.
        size = np.maximum(2.0 * ellipsoid.semi_axes, LEAST_SIZE)
        self._add("payload", Marker.SPHERE, center, rotation @ ellipsoid.rotation, size)
        self._add("com", Marker.SPHERE, center, np.eye(3), np.full(3, COM_DIAMETER))
        above = center + np.array([0.0, 0.0, float(ellipsoid.semi_axes.max()) + TEXT_HEIGHT])
        bounds = f"[{estimate.lower[0]:.3f}, {estimate.upper[0]:.3f}]"
        self.add_text("text", above, f"{estimate.values[0]:.3f} kg in {bounds}")

    def _add(self, namespace: str, kind: int, position: ArrayLike, rotation: ArrayLike, scale: ArrayLike) -> Marker:
        x, y, z, w = pin.Quaternion(np.asarray(rotation, dtype=float)).normalized().coeffs()
        red, green, blue, opacity = COLORS[namespace]
        size = np.asarray(scale, dtype=float)
        marker = Marker(
            header=self._header,
            ns=namespace,
            id=len(self._markers),
            type=kind,
            action=Marker.ADD,
            pose=Pose(position=_point(position), orientation=Quaternion(x=x, y=y, z=z, w=w)),
            scale=Vector3(x=float(size[0]), y=float(size[1]), z=float(size[2])),
            color=ColorRGBA(r=red, g=green, b=blue, a=opacity),
        )
        self._markers.append(marker)
        return marker


def com_bounds(estimate: ParameterEstimate) -> tuple[Array, Array]:
    """Interval of the centre of mass that follows from the bounds of mass and first moments.

    Returns:
        Lower and upper bounds in the frame of the estimate, each (3,) [m]; infinite where the mass may be zero.
    """
    mass_lower, mass_upper = float(estimate.lower[0]), float(estimate.upper[0])
    if not mass_lower > 0.0:
        return np.full(3, -np.inf), np.full(3, np.inf)
    lower, upper = estimate.lower[1:4], estimate.upper[1:4]
    corners = np.array([lower / mass_lower, lower / mass_upper, upper / mass_lower, upper / mass_upper])
    return corners.min(axis=0), corners.max(axis=0)


def _point(values: ArrayLike) -> Point:
    x, y, z = (float(value) for value in np.asarray(values, dtype=float))
    return Point(x=x, y=y, z=z)
