"""The environment and the load of an arm: everything a plan must not touch, as one value with a hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import Sphere
from sysid_ros.core.trajectories.base import fingerprint

Array = NDArray[np.float64]

_CLEARANCE_MAX = 1.0  # [m]
_FAR = 1e4
"""Largest coordinate and half edge of an obstacle [m]; with larger ones rounding exceeds its allowance in proofs."""


@dataclass(frozen=True)
class Obstacle:
    """A solid box that stands still.

    Attributes:
        name: Name for messages.
        center: Centre in the base frame, (3,) [m], within 1e4.
        half_extents: Half edge lengths, (3,) [m], above 0 and at most 1e4.
        rotation: Axes of the box seen from the base frame, as columns, (3, 3).

    Raises:
        ParameterOutOfRange: A number is not finite, the centre or an edge is out of range, or the axes are not
            orthonormal.
    """

    name: str
    center: Array
    half_extents: Array
    rotation: Array = field(default_factory=lambda: np.eye(3))

    def __post_init__(self) -> None:
        shapes = {"center": (3,), "half_extents": (3,), "rotation": (3, 3)}
        for name, shape in shapes.items():
            array = np.array(getattr(self, name), dtype=float)
            if array.shape != shape or not np.all(np.isfinite(array)):
                raise ParameterOutOfRange(f"{name} of obstacle '{self.name}'", array.tolist(), f"finite, shape {shape}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        for name, lower in (("center", -_FAR), ("half_extents", 0.0)):
            array = getattr(self, name)
            if not np.all((array > lower) & (array <= _FAR)):
                allowed = f"above {lower:g}, at most {_FAR:g}"
                raise ParameterOutOfRange(f"{name} [m] of obstacle '{self.name}'", array.tolist(), allowed)
        if not np.allclose(self.rotation @ self.rotation.T, np.eye(3), atol=1e-6):
            raise ParameterOutOfRange(f"rotation of obstacle '{self.name}'", self.rotation.tolist(), "orthonormal rows")

    def distance(self, points: ArrayLike) -> Array:
        """Compute distances of points (..., 3) [m] to the surface, (...) [m]; negative inside."""
        beyond = np.abs((np.asarray(points) - self.center) @ self.rotation) - self.half_extents
        distances: Array = np.linalg.norm(np.maximum(beyond, 0.0), axis=-1) + np.minimum(beyond.max(axis=-1), 0.0)
        return distances


@dataclass(frozen=True)
class Scene:
    """Everything a plan is kept away from, in the base frame.

    Attributes:
        obstacles: Boxes.
        ground_height: Height of the ground [m]; None for no ground.
        payload_spheres: Spheres around the load, fixed to the last body; None for those of the robot's payload prior,
            an empty tuple for no load.
        clearance: Distance to keep [m].

    Raises:
        ParameterOutOfRange: A number is not finite or outside its range.
    """

    obstacles: tuple[Obstacle, ...] = ()
    ground_height: float | None = None
    payload_spheres: tuple[Sphere, ...] | None = None
    clearance: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "obstacles", tuple(self.obstacles))
        if self.payload_spheres is not None:
            object.__setattr__(self, "payload_spheres", tuple(self.payload_spheres))
        if not 0.0 <= self.clearance <= _CLEARANCE_MAX:
            raise ParameterOutOfRange("clearance [m]", self.clearance, f"0 to {_CLEARANCE_MAX:g}")
        if self.ground_height is not None and not np.isfinite(self.ground_height):
            raise ParameterOutOfRange("ground_height [m]", self.ground_height, "a finite number, or None for no ground")
        for index, sphere in enumerate(self.payload_spheres or ()):
            row = [*sphere.center, sphere.radius]
            if len(row) != 4 or not np.all(np.isfinite(row)) or not sphere.radius > 0.0:
                raise ParameterOutOfRange(f"payload_spheres[{index}] [m]", row, "x, y, z and a radius above 0")

    def hash(self) -> str:
        """Fingerprint of all numbers, the same on every machine, as 64 hex digits; names of obstacles do not count."""
        ground = np.array([] if self.ground_height is None else [self.ground_height], dtype=float)
        boxes = [array for o in self.obstacles for array in (o.center, o.half_extents, o.rotation)]
        is_prior = self.payload_spheres is None
        spheres = [np.array([s.body, *s.center, s.radius]) for s in self.payload_spheres or ()]
        counts = np.array([len(self.obstacles), float(is_prior), len(spheres)])
        return fingerprint("scene", np.array([self.clearance]), ground, counts, *boxes, *spheres)

    def find_missing(self, other: Scene) -> str | None:
        """Describe contents of this scene that another lacks; None where what is safe there is safe here."""
        known = {_identity(obstacle) for obstacle in other.obstacles}
        missing = [f"the obstacle '{one.name}'" for one in self.obstacles if _identity(one) not in known]
        grounds = [-np.inf if scene.ground_height is None else scene.ground_height for scene in (self, other)]
        if grounds[0] > grounds[1]:
            there = "there is none" if other.ground_height is None else f"it is at {other.ground_height:g} m"
            missing.append(f"a ground at {self.ground_height:g} m or above ({there})")
        if self.clearance > other.clearance:
            missing.append(f"a clearance of {self.clearance:g} m or more (it is {other.clearance:g} m)")
        bare = [replace(scene, obstacles=(), ground_height=None, clearance=0.0).hash() for scene in (self, other)]
        if bare[0] != bare[1]:
            missing.append("the same spheres around the payload")
        return " and ".join(missing) or None

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers, texts and lists, fit for JSON and YAML."""
        spheres = self.payload_spheres
        return {
            "obstacles": [
                {
                    "name": o.name,
                    "center": o.center.tolist(),
                    "half_extents": o.half_extents.tolist(),
                    "rotation": o.rotation.tolist(),
                }
                for o in self.obstacles
            ],
            "ground_height": None if self.ground_height is None else float(self.ground_height),
            "payload_spheres": None
            if spheres is None
            else [[int(s.body), *map(float, s.center), float(s.radius)] for s in spheres],
            "clearance": float(self.clearance),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scene:
        """Make a scene from the result of :meth:`to_dict`, or from a file written by hand; any entry may be left out.

        Raises:
            ParameterOutOfRange: An entry is unknown or cannot be used.
        """
        unknown = sorted(set(data) - set(cls.__dataclass_fields__))
        if unknown:
            raise ParameterOutOfRange("scene", unknown, f"only {', '.join(cls.__dataclass_fields__)}")
        try:
            obstacles = tuple(Obstacle(**entry) for entry in data.get("obstacles") or ())
            rows = data.get("payload_spheres")
            spheres = None
            if rows is not None:
                spheres = tuple(
                    Sphere(int(row[0]), np.array(row[1:4], float), float(row[4]), "payload") for row in rows
                )
            ground = data.get("ground_height")
            return cls(obstacles, None if ground is None else float(ground), spheres, float(data.get("clearance", 0.0)))
        except (TypeError, ValueError, IndexError) as error:
            allowed = "obstacles with name, center, half_extents, rotation; payload_spheres [body, x, y, z, radius]"
            raise ParameterOutOfRange("scene", str(error), allowed) from error


def _identity(obstacle: Obstacle) -> str:
    return fingerprint("obstacle", obstacle.center, obstacle.half_extents, obstacle.rotation)
