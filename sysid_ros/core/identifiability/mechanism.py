"""The structural answer for a mechanism from where mechanisms come from: the URDF of any robot, or an arm's model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.pinocchio_tree import tree_from_model
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.snapping import Comparison, compare_with_exact
from sysid_ros.core.identifiability.structure import analyze_structure
from sysid_ros.core.identifiability.tree import KinematicTree
from sysid_ros.core.identifiability.urdf_tree import STANDARD_GRAVITY, read_rotors, tree_from_urdf
from sysid_ros.core.model.robot import RobotModel


@dataclass(frozen=True)
class MechanismOptions:
    """What a URDF does not say about the mechanism.

    Attributes:
        gravity: Gravity in the frame of the root link, (3,) [m/s^2]; None for the usual one, or that of the arm.
        is_floating: Whether the root link floats freely.
        locked: Joints that do not move (at zero).
        massless: What bodies without mass are, see
            :func:`sysid_ros.core.identifiability.pinocchio_tree.tree_from_model`.
        rotors: YAML with the rotors, see :func:`sysid_ros.core.identifiability.urdf_tree.read_rotors`; empty for none.

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
    """Which parameters of a robot can be known, from its URDF.

    Args:
        text: The URDF, with xacro macros expanded; meshes are not needed.
        settings: What is measured, in which motions, and which parameters are unknown.
        options: What the URDF does not say.

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
    """Which parameters of an arm of this package can be known, mounted as its settings say.

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
