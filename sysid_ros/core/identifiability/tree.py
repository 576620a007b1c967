"""A kinematic tree: the basis of identifiability. No masses, no limits, no geometry.

The frame of a body is the frame of the joint that moves it. Twists are ``[linear; angular]`` in the body's frame, as in
Pinocchio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ModelError

Array = NDArray[np.float64]


WORLD = -1
"""Parent index of a body whose parent stands still."""
ROTOR_PARAMETERS = ("axial", "symmetric", "full")
"""Sets of unknown parameters of a rotor: 1, 4 or 10 of them."""

_ROTATION_TOLERANCE = 1e-6
"""Entries of ``R R^T - 1`` may be this large: a matrix that was written with six digits."""
_SMALLEST_LENGTH = 1e-6
"""No robot has shorter links [m]; such an offset is a rounding error."""
_SMALLEST_AXIS = 1e-9
"""An axis shorter than this has no direction."""


@dataclass(frozen=True)
class Rotor:
    """The rotor of a joint's motor, carried by the joint's parent body and turning ``gear_ratio`` times as far.

    Attributes:
        gear_ratio: Rotor angle per joint position [- or rad/m]; negative if it turns the other way.
        axis: Direction it turns about, (3,), in the joint's frame at zero position.
        origin: A point of that axis, (3,) [m], in the same frame.
        parameters: ``axial``: only the inertia about its axis is a parameter of its own, and the rest counts with the
            body that carries it; ``symmetric``: mass, first moment along the axis, both inertias; ``full``: any ten.

    Source: RPNA section 8 and appendix I.
    """

    gear_ratio: float
    axis: ArrayLike
    origin: ArrayLike = (0.0, 0.0, 0.0)
    parameters: str = "axial"


@dataclass(frozen=True)
class Mimic:
    """A joint's position in terms of another's: ``multiplier * q + offset``.

    Attributes:
        joint: Name of the other joint.
        multiplier: [-, m/rad or rad/m].
        offset: [rad or m].
    """

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class TreeBody:
    """A body and the joint that moves it.

    Attributes:
        name: Name of the joint (parameters are named after it).
        parent: Index of the parent body, smaller than its own; ``WORLD`` for the fixed one.
        rotation: Rotation of the body's frame in its parent's at zero position, (3, 3).
        translation: Its origin there, (3,) [m].
        motion: Twists of the joint's degrees of freedom in the body's frame, (6, nd), ``[linear; angular]``; constant.
        links: Names of the links that make up the body.
        has_inertia: False for a body without mass, as between the two axes of a universal joint.
        rotor: Its motor's rotor; only for joints with one degree of freedom.
        follows: The joint that its own follows, where it does not move by itself; both have one degree of freedom.
    """

    name: str
    parent: int
    rotation: Array
    translation: Array
    motion: Array
    links: tuple[str, ...] = ()
    has_inertia: bool = True
    rotor: Rotor | None = None
    follows: Mimic | None = None

    @property
    def dofs(self) -> int:
        """Degrees of freedom of the joint."""
        return int(self.motion.shape[1])

    @property
    def is_translating(self) -> bool:
        """Whether the joint has one degree of freedom and it is a translation."""
        return self.dofs == 1 and not self.motion[3:].any()

    @property
    def kind(self) -> str:
        """Kind of the joint, in words."""
        if self.dofs != 1:
            return {0: "fixed", 6: "floating"}.get(self.dofs, f"{self.dofs} degrees of freedom")
        if self.is_translating:
            return "prismatic"
        along = float(self.motion[:3, 0] @ self.motion[3:, 0])
        return "helical" if abs(along) > _SMALLEST_AXIS else "revolute"


@dataclass(frozen=True)
class KinematicTree:
    """Bodies in an order in which parents come first, and gravity.

    Attributes:
        name: Name of the robot.
        bodies: The bodies.
        gravity: Gravity in the frame of the world, (3,) [m/s^2]; zero for none.
        notes: Remarks on the construction of the tree.

    Raises:
        ModelError: A loop or a parent that comes later, a zero axis, a number that is not finite, a matrix that is no
            rotation, a name used twice, a rotor at a joint with several degrees of freedom.
    """

    name: str
    bodies: tuple[TreeBody, ...]
    gravity: Array
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "gravity", _finite(self.gravity, (3,), "gravity"))
        if not self.bodies:
            raise ModelError("tree", "has no bodies that move")
        names = [body.name for body in self.bodies]
        for i, body in enumerate(self.bodies):
            if names.index(body.name) != i:
                raise ModelError(f"joint '{body.name}'", "exists twice; every joint needs a name of its own")
            if not WORLD <= body.parent < i:
                raise ModelError(
                    f"joint '{body.name}'",
                    f"is body {i} with parent {body.parent}; parents come first (a loop of joints cannot be analysed)",
                )
        object.__setattr__(self, "bodies", tuple(_checked(body) for body in self.bodies))
        leaders = {body.name for body in self.bodies if body.dofs == 1 and body.follows is None}
        for body in self.bodies:
            if body.follows is not None and (body.dofs != 1 or body.follows.joint not in leaders):
                problem = (
                    f"follows '{body.follows.joint}'; both need one degree of freedom, and that one moves by itself"
                )
                raise ModelError(f"joint '{body.name}'", problem)

    @property
    def is_floating(self) -> bool:
        """Whether the first body floats freely."""
        first = self.bodies[0]
        return first.parent == WORLD and first.dofs == 6

    @property
    def followers(self) -> tuple[str, ...]:
        """Names of the joints that follow others."""
        return tuple(body.name for body in self.bodies if body.follows is not None)

    @property
    def length(self) -> float:
        """A typical distance between neighbouring joints [m], the unit of length inside the analysis."""
        distances = [float(np.linalg.norm(body.translation)) for body in self.bodies]
        far = [distance for distance in distances if distance > max(1e-3 * max(distances), _SMALLEST_LENGTH)]
        return float(np.median(far)) if far else 1.0

    def with_gravity(self, gravity: ArrayLike) -> KinematicTree:
        """Return the same tree in other gravity (3,) [m/s^2]."""
        return replace(self, gravity=np.array(gravity, dtype=float))

    def with_rotors(self, rotors: dict[str, Rotor]) -> KinematicTree:
        """Return the same tree with rotors by the joints' names.

        Raises:
            ModelError: A joint does not exist or has several degrees of freedom, or a rotor is not well defined.
        """
        names = [body.name for body in self.bodies]
        for name in rotors:
            if name not in names:
                raise ModelError(f"rotor of '{name}'", f"there is no such joint; joints are {', '.join(names)}")
        bodies = tuple(replace(body, rotor=rotors.get(body.name, body.rotor)) for body in self.bodies)
        return replace(self, bodies=bodies)

    def with_base_body(self, name: str = "base") -> KinematicTree:
        """Return the same mechanism with the fixed body as a body of its own, for a sensor underneath it."""
        base = TreeBody(name, WORLD, np.eye(3), np.zeros(3), np.zeros((6, 0)))
        return replace(self, bodies=(base, *(replace(body, parent=body.parent + 1) for body in self.bodies)))


def build_tree(name: str, bodies: Sequence[TreeBody], gravity: ArrayLike = (0.0, 0.0, -9.81)) -> KinematicTree:
    """Build a checked tree of bodies; raises ``ModelError`` as :class:`KinematicTree` does."""
    return KinematicTree(name, tuple(bodies), np.array(gravity, dtype=float))


def revolute(axis: ArrayLike) -> Array:
    """Return the motion (6, 1) of a revolute joint about an axis (3,) of the body; raises ``ModelError`` for zero."""
    return np.concatenate([np.zeros(3), _unit(axis, "axis of a revolute joint")])[:, None]


def prismatic(axis: ArrayLike) -> Array:
    """Return the motion (6, 1) of a prismatic joint along an axis (3,) of the body; raises ``ModelError`` for zero."""
    return np.concatenate([_unit(axis, "axis of a prismatic joint"), np.zeros(3)])[:, None]


def _unit(axis: ArrayLike, what: str) -> Array:
    values = _finite(axis, (3,), what)
    norm = float(np.linalg.norm(values))
    if norm < _SMALLEST_AXIS:
        raise ModelError(what, f"is zero ({values.tolist()}); it needs a direction")
    return values / norm


def _finite(values: ArrayLike, shape: tuple[int, ...], what: str) -> Array:
    try:
        array = np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(what, f"must be numbers, not {values!r}") from None
    if array.shape != shape or not np.all(np.isfinite(array)):
        raise ModelError(what, f"must be finite numbers of shape {shape}, not {array.tolist()}")
    array.setflags(write=False)
    return array


def _checked(body: TreeBody) -> TreeBody:
    label = f"joint '{body.name}'"
    rotation = _finite(body.rotation, (3, 3), f"{label}, rotation")
    if np.abs(rotation @ rotation.T - np.eye(3)).max() > _ROTATION_TOLERANCE or np.linalg.det(rotation) < 0.0:
        raise ModelError(label, f"has a placement that is no rotation: {rotation.tolist()}")
    translation = _finite(body.translation, (3,), f"{label}, translation")
    motion = np.asarray(body.motion, dtype=float)
    motion = _finite(motion, (6, motion.shape[1] if motion.ndim == 2 else 1), f"{label}, motion")
    if motion.shape[1] and np.linalg.matrix_rank(motion, _SMALLEST_AXIS) < motion.shape[1]:
        raise ModelError(label, "has a zero axis, or axes that depend on each other")
    rotor = body.rotor
    if rotor is not None:
        if body.dofs != 1:
            raise ModelError(label, f"has a rotor and {body.dofs} degrees of freedom; a rotor needs exactly one")
        if not np.isfinite(rotor.gear_ratio) or rotor.gear_ratio == 0.0:
            raise ModelError(f"rotor of '{body.name}'", f"has the gear ratio {rotor.gear_ratio}; it must not be zero")
        if rotor.parameters not in ROTOR_PARAMETERS:
            allowed = ", ".join(ROTOR_PARAMETERS)
            raise ModelError(f"rotor of '{body.name}'", f"has parameters '{rotor.parameters}'; allowed are {allowed}")
        axis = _unit(rotor.axis, f"rotor of '{body.name}', axis")
        rotor = replace(rotor, axis=axis, origin=_finite(rotor.origin, (3,), f"rotor of '{body.name}', origin"))
    return replace(body, rotation=rotation, translation=translation, motion=motion, rotor=rotor)
