"""Structural analysis from a URDF or from an arm's model, and identifiability of a payload."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.advice import Advice, advise
from sysid_ros.core.identifiability.data import DataAnalysis, analyze_data
from sysid_ros.core.identifiability.information import ArmInformation
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.snapping import Comparison, compare_with_exact
from sysid_ros.core.identifiability.structure import Structure, analyze_structure
from sysid_ros.core.identifiability.tree import KinematicTree
from sysid_ros.core.identifiability.tree_readers import STANDARD_GRAVITY, read_rotors, tree_from_model, tree_from_urdf
from sysid_ros.core.model.robot import RobotModel


@dataclass(frozen=True)
class MechanismOptions:
    """Options of a mechanism that a URDF does not contain.

    Attributes:
        gravity: Gravity in the frame of the root link, (3,) [m/s^2]; None for the usual one, or that of the arm.
        is_floating: Whether the root link floats freely.
        locked: Joints that do not move (at zero).
        massless: Meaning of bodies without mass, see
            :func:`sysid_ros.core.identifiability.tree_readers.tree_from_model`.
        rotors: YAML with the rotors, see :func:`~sysid_ros.core.identifiability.tree_readers.read_rotors`; empty for
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
        settings: What is measured, in which motions, and which parameters are unknown.
        options: Options that the URDF does not contain.

    Returns:
        The answer for the geometry as written, and for rounded angles and offsets made exact.

    Raises:
        ModelError: The URDF or the rotors cannot be used; names what is wrong.
        JointNotFound: A joint that is named does not exist.
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
        settings: What is measured, in which motions, and which parameters are unknown.
        options: Gravity (in the base frame), bodies without mass and rotors, where they differ from the arm's.

    Returns:
        The answer for the geometry as written, and for rounded angles and offsets made exact.

    Raises:
        ModelError: The rotors cannot be used.
        JointNotFound: A joint that is named does not exist.
        ParameterOutOfRange: A setting is out of range, or joints are locked or the base floats: an arm's settings say
            which joints move and how it is mounted.
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

    Args:
        robot: The arm and the prior of its payload.
        prior: Another prior box of the ten parameters, for instance of last body and payload together.
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
                ``StreamingEstimator.information`` gives it. It forgets which joint a row belongs to, so all rows are
                given the same typical error.
            box: Guaranteed bounds of the ten parameters.

        Returns:
            The analysis.

        Raises:
            ParameterOutOfRange: The matrix has another shape or is not finite.
        """
        return analyze_data(self.structure, self._information(gram), self._scale, box)

    def advise(self, analysis: DataAnalysis, gram: ArrayLike, speeds: ArrayLike | None = None) -> Advice | None:
        """Search for a motion that determines what the data do not.

        Args:
            analysis: Result of :meth:`analyze` for the same Gram matrix.
            gram: The Gram matrix.
            speeds: Largest speeds in the data, (n,) [rad/s], if known.

        Returns:
            The advice; None if everything is determined or nothing found helps.
        """
        recorded = None if speeds is None else np.asarray(speeds, dtype=float)
        return advise(self._robot, analysis, self._source, self._information(gram), recorded)

    def _information(self, gram: ArrayLike) -> NDArray[np.float64]:
        matrix = np.asarray(gram, dtype=float)
        if matrix.shape != (10, 10) or not np.all(np.isfinite(matrix)):
            raise ParameterOutOfRange("information", matrix.shape, "finite, of shape (10, 10)")
        return matrix / self.row_error**2
