"""Structural analysis of a URDF, an arm's model or a payload, with rounded geometry made exact.

Placements and axes within a small tolerance of exact right, 45, 30 or 15 degree angles count as exact: a tilt of 1e-6
rad in a drawing makes parameters identifiable in theory that no experiment can ever find.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.advice import Advice, advise
from sysid_ros.core.identifiability.data import ArmInformation, DataAnalysis, analyze_data
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import Structure, analyze_structure
from sysid_ros.core.identifiability.tree import KinematicTree, TreeBody
from sysid_ros.core.identifiability.tree_readers import STANDARD_GRAVITY, read_rotors, tree_from_model, tree_from_urdf
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

ANGLE_TOLERANCE = 2.5e-3
"""Rotations and axes closer than this to an exact one are replaced by it [rad]: 3.14 is 1.6e-3 from half a turn, and
1.57 8e-4 from a right angle; two or three of them in one placement add up to 2.4e-3."""
LENGTH_TOLERANCE = 1e-4
"""Offsets below this share of the typical link length are set to zero."""
_EXACT = 1e-12
"""Differences below this are rounding errors and not reported."""
_STEPS = 24  # of 15 degrees in a turn


@dataclass(frozen=True)
class Snapped:
    """A change of the geometry to an exact value.

    Attributes:
        element: Changed element, such as ``placement of joint_2``.
        change: Size of the change [rad, or m for an offset].
        unit: ``rad`` or ``m``.
    """

    element: str
    change: float
    unit: str


@dataclass(frozen=True)
class Comparison:
    """Structural analysis of a mechanism as given and with exact geometry.

    Attributes:
        raw: As given.
        snapped: With the rounded geometry exact; the same as ``raw`` if nothing was rounded.
        changes: The changes made.
    """

    raw: Structure
    snapped: Structure
    changes: tuple[Snapped, ...]

    @property
    def is_near_dependency(self) -> bool:
        """Whether rounding makes parameters look identifiable that are not."""
        return self.raw.count != self.snapped.count

    @property
    def lost_names(self) -> tuple[str, ...]:
        """Base parameters of the raw answer that the exact one does not have."""
        exact = set(self.snapped.base_names)
        return tuple(name for name in self.raw.base_names if name not in exact)

    def sentence(self) -> str:
        """Describe the effect of rounding in one or two sentences; empty if it has none."""
        if not self.is_near_dependency:
            return ""
        parts = [item.element + (f" by {item.change:.1e} {item.unit}") for item in self.changes]
        return (
            f"The geometry as written gives {self.raw.count} base parameters, but {self.raw.count - self.snapped.count}"
            f" of them ({', '.join(self.lost_names)}) are identifiable only because angles or offsets are rounded "
            f"({', '.join(parts)}). With exact geometry there are {self.snapped.count}; the others have "
            f"{self.raw.weakest:.0e} of the rest's effect on the measurements."
        )


def compare_with_exact(structure: Structure, exact: KinematicTree | None = None) -> Comparison:
    """Repeat an analysis with rounded geometry made exact.

    Args:
        structure: The analysis of the mechanism as given.
        exact: The mechanism with known rounded angles replaced, if there is one (URDFs show them by the number of
            digits); its other differences are kept.

    Returns:
        Both results and the changes.
    """
    snapped, changes = snap_tree(structure.mechanism, exact)
    if not changes:
        return Comparison(structure, structure, ())
    return Comparison(structure, analyze_structure(snapped, structure.settings), tuple(changes))


def snap_tree(tree: KinematicTree, exact: KinematicTree | None = None) -> tuple[KinematicTree, list[Snapped]]:
    """Make geometry within the tolerances of exact geometry exact, and list the changes.

    ``exact`` is the same tree with rotations already replaced where that is known to be right.
    """
    limit = LENGTH_TOLERANCE * tree.length
    bodies, changes = [], []
    for k, body in enumerate(tree.bodies):
        wanted = body.rotation if exact is None else exact.bodies[k].rotation
        rotation = _nearest(wanted, _rotations())
        if rotation is None:
            rotation = wanted
        offset = np.where(np.abs(body.translation) < limit, 0.0, body.translation)
        motion = _snap_motion(body)
        parts = (
            (f"placement of {body.name}", _angle(body.rotation, rotation), "rad"),
            (f"axis of {body.name}", float(np.abs(motion - body.motion).max(initial=0.0)), "rad"),
            (f"offset of {body.name}", float(np.abs(offset - body.translation).max()), "m"),
        )
        changes += [Snapped(*part) for part in parts if part[1] > _EXACT]
        bodies.append(replace(body, rotation=rotation, translation=offset, motion=motion))
    gravity, strength = np.array(tree.gravity), float(np.linalg.norm(tree.gravity))
    if strength > 0.0:
        direction = _nearest(gravity / strength, _directions())
        if direction is not None:
            gravity = strength * direction
            turned = float(np.linalg.norm(gravity - tree.gravity)) / strength
            if turned > _EXACT:
                changes.append(Snapped("direction of gravity", turned, "rad"))
    return replace(tree, bodies=tuple(bodies), gravity=gravity), changes


def _snap_motion(body: TreeBody) -> Array:
    motion = np.array(body.motion)
    if body.dofs == 1 and body.kind in ("revolute", "prismatic"):
        part = slice(0, 3) if body.is_translating else slice(3, 6)
        axis = _nearest(motion[part, 0], _directions())
        if axis is not None:
            motion[part, 0] = axis
    return motion


def _nearest(value: Array, candidates: Array) -> Array | None:
    """Find the candidate (of the same norm) within the tolerance of a rotation (3, 3) or a direction (3,), if any."""
    flat = value.ravel()
    best = candidates[int(np.argmax(candidates @ flat))]
    # A rotation by a small angle changes the matrix by sqrt(2) times the angle.
    limit = ANGLE_TOLERANCE * (np.sqrt(2.0) if flat.size == 9 else 1.0)
    return best.reshape(value.shape).copy() if np.linalg.norm(best - flat) < limit else None


def _angle(first: Array, second: Array) -> float:
    return float(np.linalg.norm(first - second) / np.sqrt(2.0))


@cache
def _rotations() -> Array:
    """List right-angled rotations followed by one about a coordinate axis in steps of 15 degrees, (k, 9), once each."""
    right = Rotation.create_group("O").as_matrix().round()
    turned = []
    for angle, axis in itertools.product(np.arange(_STEPS) * (2.0 * np.pi / _STEPS), range(3)):
        turn, (i, j) = np.eye(3), ((axis + 1) % 3, (axis + 2) % 3)
        turn[i, i] = turn[j, j] = np.cos(angle)
        turn[j, i], turn[i, j] = np.sin(angle), -np.sin(angle)
        turned.append(turn @ right)
    flat = np.concatenate(turned).reshape(-1, 9)
    flat[np.abs(flat) < 1e-15] = 0.0
    _, kept = np.unique(flat.round(9), axis=0, return_index=True)
    return flat[kept]


@cache
def _directions() -> Array:
    """List the directions those rotations give to a coordinate axis, (k, 3)."""
    columns = _rotations().reshape(-1, 3, 3)[:, :, 0]
    _, kept = np.unique(columns.round(9), axis=0, return_index=True)
    return columns[kept]


@dataclass(frozen=True)
class MechanismOptions:
    """Options of a mechanism that a URDF does not contain.

    Attributes:
        gravity: Gravity in the frame of the root link, (3,) [m/s^2]; None for the usual one, or that of the arm.
        is_floating: Whether the root link floats freely.
        locked: Joints that do not move (at zero).
        massless: Meaning of bodies without mass, see
            :func:`sysid_ros.core.identifiability.tree_readers.tree_from_model`.
        rotors: YAML of the rotors, see :func:`~sysid_ros.core.identifiability.tree_readers.read_rotors`; empty for
            none.

    Raises:
        ParameterOutOfRange: Gravity is not three numbers.
    """

    gravity: tuple[float, ...] | None = None
    is_floating: bool = False
    locked: tuple[str, ...] = ()
    massless: str = "as_modelled"
    rotors: str = ""

    def __post_init__(self) -> None:
        if self.gravity is not None and len(self.gravity) != 3:
            raise ParameterOutOfRange("gravity [m/s^2]", list(self.gravity), "three numbers, or none")


def compare_urdf(
    text: str, settings: AnalysisSettings | None = None, options: MechanismOptions | None = None
) -> Comparison:
    """Analyse which parameters of a robot are identifiable, from its URDF.

    Args:
        text: The URDF, with xacro macros expanded; meshes are not needed.
        settings: Measurements, motions and unknown parameters.
        options: Options that the URDF does not contain.

    Returns:
        The answer for the geometry as written, and for rounded angles and offsets made exact.

    Raises:
        ModelError: The URDF or the rotors cannot be used; names what is wrong.
        ParameterOutOfRange: An option or a setting is out of range.
    """
    options = options or MechanismOptions()
    gravity = STANDARD_GRAVITY if options.gravity is None else options.gravity
    raw, exact = (
        tree_from_urdf(
            text,
            gravity=gravity,
            is_floating=options.is_floating,
            locked=options.locked,
            massless=options.massless,
            snap_angles=snap,
        )
        for snap in (False, True)
    )
    raw, exact = _with_rotors(options.rotors, raw, exact)
    return compare_with_exact(analyze_structure(raw, settings), exact)


def compare_robot(
    robot: RobotModel, settings: AnalysisSettings | None = None, options: MechanismOptions | None = None
) -> Comparison:
    """Analyse which parameters of an arm of this package are identifiable, mounted as its settings say.

    Args:
        robot: The arm, with the joints its settings fix.
        settings: Measurements, motions and unknown parameters.
        options: Gravity (in the base frame), bodies without mass and rotors, where they differ from the arm's.

    Returns:
        The answer for the geometry as written, and for rounded angles and offsets made exact.

    Raises:
        ModelError: The rotors cannot be used.
        ParameterOutOfRange: A setting is out of range, or joints are locked or the base floats: an arm's settings
            define its joints and mounting.
    """
    options = options or MechanismOptions()
    if options.is_floating or options.locked:
        raise ParameterOutOfRange("floating, locked", "given for an arm with settings", "only with a URDF")
    tree = replace(tree_from_model(robot.pin_model, massless=options.massless), notes=robot.warnings)
    if options.gravity is not None:
        tree = tree.with_gravity(options.gravity)
    (tree,) = _with_rotors(options.rotors, tree)
    return compare_with_exact(analyze_structure(tree, settings))


def _with_rotors(text: str, *trees: KinematicTree) -> tuple[KinematicTree, ...]:
    if not text:
        return trees
    rotors = read_rotors(text, trees[0])
    return tuple(tree.with_rotors(rotors) for tree in trees)


class PayloadIdentifiability:
    """Structural and data-driven identifiability of a payload in the hand of an arm.

    The arm's own parameters are known up to their box; its radii are part of the error of each row.
    """

    def __init__(self, robot: RobotModel, prior: Box | None = None):
        self._robot = robot
        self.structure: Structure = analyze_structure(
            tree_from_model(robot.pin_model), AnalysisSettings(known=robot.joint_names[:-1])
        )
        self._source = ArmInformation(robot, self.structure)
        radius = (prior or robot.payload_prior.box).radius
        # The analysis is in units of the radii, which must not be zero.
        self._scale = np.maximum(radius, 1e-6 * max(float(radius.max()), 1e-6))

    @property
    def row_error(self) -> float:
        """Typical error of a mean torque [Nm]: the median over the joints, at rest in the home posture."""
        home = self._robot.home[None]
        return float(np.median(self._source.row_deviation(home, 0.0 * home, 0.0 * home)))

    def analyze(self, gram: ArrayLike, box: Box | None = None) -> DataAnalysis:
        """Analyse the information of data.

        Args:
            gram: Gram matrix of the windows as mean torques, (10, 10) [Nm^2 per parameter^2], as
                ``StreamingEstimator.information`` gives it. It has lost the joint of each row, so all rows have the
                same typical error.
            box: Guaranteed bounds of the ten parameters.

        Returns:
            The analysis.

        Raises:
            ParameterOutOfRange: The matrix has another shape or is not finite.
        """
        return analyze_data(self.structure, self._information(gram), self._scale, box)

    def advise(self, analysis: DataAnalysis, gram: ArrayLike, speeds: ArrayLike | None = None) -> Advice | None:
        """Search for a motion that determines the undetermined combinations of an analysis of the same Gram matrix.

        ``speeds`` are the largest ones in the data, (n,) [rad/s], if known.

        Returns:
            The advice; None if everything is determined or none found helps.
        """
        recorded = None if speeds is None else np.asarray(speeds, dtype=float)
        return advise(self._robot, analysis, self._source, self._information(gram), recorded)

    def _information(self, gram: ArrayLike) -> NDArray[np.float64]:
        matrix = np.asarray(gram, dtype=float)
        if matrix.shape != (10, 10) or not np.all(np.isfinite(matrix)):
            raise ParameterOutOfRange("information", matrix.shape, "finite, of shape (10, 10)")
        return matrix / self.row_error**2
