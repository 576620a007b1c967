"""A free-flying robot: its tree, reaction wheels and limits, from ``config/space/<name>.yaml`` and a URDF."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.robot_files import config_directories
from sysid_ros.core.model.settings import Section
from sysid_ros.space.core.momentum import INERTIA_ENTRIES, FloatingTree

Array = NDArray[np.float64]

_FOLDER = "space"


@dataclass(frozen=True, eq=False)
class ReactionWheels:
    """Wheels in the base that turn about their axes of symmetry.

    Attributes:
        names: Names, W of them.
        axes: Unit axes in the frame of the base, (W, 3) [-].
        inertias: Inertias about the axes, (W,) [kg m^2]. Everything else the wheels weigh belongs to the base.
        speeds: Largest speeds relative to the base, (W,) [rad/s].
    """

    names: tuple[str, ...]
    axes: Array
    inertias: Array
    speeds: Array

    @property
    def count(self) -> int:
        """Number of wheels [-]."""
        return len(self.names)

    def momentum(self, rates: ArrayLike) -> Array:
        """Compute the additional momentum of the wheels by turning relative to the base at speeds (N, W) [rad/s].

        Returns:
            Linear (zero) and angular momentum in the axes of the base, (N, 6) [kg m/s, kg m^2/s].

        Raises:
            ParameterOutOfRange: A wheel is too fast.
        """
        values = np.asarray(rates, dtype=float)
        if values.ndim != 2 or values.shape[1] != self.count:
            raise ParameterOutOfRange("the shape of wheel rates", values.shape, f"(N, {self.count})")
        for wheel in np.flatnonzero(~(np.abs(values) <= self.speeds).all(axis=0)):
            raise ParameterOutOfRange(
                f"speed of {self.names[wheel]} [rad/s]",
                float(np.abs(values[:, wheel]).max()),
                f"at most {self.speeds[wheel]:g}: the wheel saturates",
            )
        return np.concatenate([np.zeros((len(values), 3)), (values * self.inertias) @ self.axes], axis=1)


@dataclass(frozen=True, eq=False)
class FreeFlyer:
    """A free-flying robot.

    Attributes:
        name: Name of its settings.
        urdf: Its URDF.
        tree: Kinematics, with nominal inertial parameters.
        joint_names: Joints in the order of the tree, (n,).
        home: Positions it starts from, (n,) [rad].
        q_lower: Lower position limits, (n,) [rad].
        q_upper: Upper position limits, (n,) [rad].
        v_max: Velocity limits, (n,) [rad/s].
        a_max: Acceleration limits, (n,) [rad/s^2].
        wheels: Reaction wheels of the base.
        noise: Standard deviations of the sensors: linear [m/s] and angular velocity [rad/s] of the base, rates of the
            joints [rad/s], (3,).
        truth: Inertial parameters of the simulated robot, (10 B,); None if the settings name none. For simulations and
            for comparison only.
        prior: Prior box of its inertial parameters, (10 B,); None if the settings give no ranges.
        tool: Link whose frame objects in the hand are described in.
    """

    name: str
    urdf: str
    tree: FloatingTree
    joint_names: tuple[str, ...]
    home: Array
    q_lower: Array
    q_upper: Array
    v_max: Array
    a_max: Array
    wheels: ReactionWheels
    noise: Array
    truth: Array | None
    prior: Box | None = None
    tool: str = ""

    @property
    def n(self) -> int:
        """Number of joints, without wheels [-]."""
        return len(self.joint_names)

    @property
    def base_link(self) -> str:
        """Name of the link that is the base."""
        return _links(self.tree.model, self.tree)[0]

    def frame(self, name: str) -> tuple[int, pin.SE3]:
        """Return the body (0..B-1) that a joint or link of the URDF belongs to, and the pose of its frame on it.

        Raises:
            ParameterOutOfRange: There is none of that name; lists those there are.
        """
        if name in self.tree.body_names:
            return self.tree.body_names.index(name), pin.SE3.Identity()
        frames = {f.name: f for f in self.tree.model.frames if f.type == pin.FrameType.BODY and f.parentJoint > 0}
        if name not in frames:
            known = ", ".join(dict.fromkeys([*self.tree.body_names, *frames]))
            raise ParameterOutOfRange("frame", name, f"one of {known}")
        return int(frames[name].parentJoint) - 1, frames[name].placement


def available_free_flyers() -> tuple[str, ...]:
    """Return the names :func:`load_free_flyer` knows."""
    files = [file for folder in config_directories() for file in sorted((folder / _FOLDER).glob("*.yaml"))]
    return tuple(dict.fromkeys(file.stem for file in files))


def load_free_flyer(name: str | Path = "dual_arm") -> FreeFlyer:
    """Load a free-flying robot by name or from its settings file.

    Args:
        name: One of :func:`available_free_flyers`, or the path of a YAML file of that form.

    Raises:
        ModelError: The name is unknown, a file cannot be read, or the URDF has joints that are neither revolute nor
            prismatic.
        ParameterOutOfRange: A setting is missing, unknown or out of range.
    """
    path = _find(name)
    try:
        settings = Section(read_yaml(path), path.name)
        urdf = (path.parent / settings.text("urdf")).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ModelError(f"cannot read the URDF that {path} names: {error}") from error
    try:
        model = pin.buildModelFromXML(urdf, pin.JointModelFreeFlyer())
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"the URDF of {path.name} cannot be used: {error}") from error
    model.gravity.linear = np.zeros(3)
    tree = FloatingTree(model)
    joints = tree.body_names[1:]
    if tree.nq != len(joints) or tree.nv != len(joints):
        raise ModelError(f"the URDF of {path.name} has joints that turn for ever or have several degrees of freedom")
    home, lower, upper, v_max, a_max = _read_joints(settings.section("joints"), joints)
    wheels = _read_wheels(settings.section("reaction_wheels", {}))
    sensors = settings.section("sensors")
    units = {"linear": "m/s", "angular": "rad/s", "joint_rate": "rad/s"}
    noise = np.array([sensors.number(name, unit, 0.0) for name, unit in units.items()])
    sensors.finish()
    truth = _read_truth(settings.section("truth"), model, tree) if "truth" in settings else None
    prior = _read_prior(settings.section("prior"), model, tree) if "prior" in settings else None
    tool = settings.text("tool", tree.body_names[-1])
    settings.finish()
    robot = FreeFlyer(
        path.stem, urdf, tree, joints, home, lower, upper, v_max, a_max, wheels, noise, truth, prior, tool
    )
    robot.frame(tool)
    return robot


def _find(name: str | Path) -> Path:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    for folder in config_directories():
        if (folder / _FOLDER / f"{name}.yaml").is_file():
            return folder / _FOLDER / f"{name}.yaml"
    known = ", ".join(available_free_flyers())
    raise ModelError(f"free-flying robot '{name}' is unknown; known are {known}, or give a .yaml file")


def _read_joints(section: Section, joints: tuple[str, ...]) -> tuple[Array, ...]:
    rows = []
    for joint in section.sections_by_joint(joints):
        lower, upper = joint.vector("position", 2, "rad", -np.pi * 4, np.pi * 4)
        if not lower < upper:
            raise ParameterOutOfRange(f"{joint.path}.position [rad]", [lower, upper], "the lower limit below the upper")
        home = joint.number("home", "rad", lower, upper)
        rates = joint.number("velocity", "rad/s", 1e-6, 100.0), joint.number("acceleration", "rad/s^2", 1e-6, 1e4)
        joint.finish()
        rows.append((home, lower, upper, *rates))
    section.finish()
    return tuple(np.array(rows).T)


def _read_wheels(section: Section) -> ReactionWheels:
    names, axes, inertias, speeds = tuple(section.keys), [], [], []
    for name in names:
        wheel = section.section(name)
        axis = wheel.vector("axis", 3, "-", -1.0, 1.0)
        if abs(np.linalg.norm(axis) - 1.0) > 1e-6:
            raise ParameterOutOfRange(f"{wheel.path}.axis [-]", axis.tolist(), "a vector of length 1")
        axes.append(axis)
        inertias.append(wheel.number("inertia", "kg m^2", 1e-9, 1e6))
        speeds.append(wheel.number("speed", "rad/s", 1e-3, 1e5))
        wheel.finish()
    return ReactionWheels(names, np.array(axes).reshape(-1, 3), np.array(inertias), np.array(speeds))


def _links(model: pin.Model, tree: FloatingTree) -> list[str]:
    bodies = [f for f in model.frames if f.type == pin.FrameType.BODY]
    return [next(str(f.name) for f in bodies if f.parentJoint == index + 1) for index in range(tree.count)]


def _read_truth(section: Section, model: pin.Model, tree: FloatingTree) -> Array:
    parts = []
    for link in _links(model, tree):
        entry = section.section(link)
        xx, yy, zz, xy, yz, xz = entry.vector("inertia", 6, "kg m^2")
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        mass = entry.number("mass", "kg", 1e-9, 1e9)
        part = from_com_form(mass, entry.vector("com", 3, "m"), inertia)
        entry.finish()
        parts.append(part)
    section.finish()
    return np.concatenate(parts)


def _read_prior(section: Section, model: pin.Model, tree: FloatingTree) -> Box:
    boxes = []
    for index, link in enumerate(_links(model, tree)):
        entry, believed = section.section(link), model.inertias[index + 1]
        mass = entry.vector("mass", 2, "kg", 0.0, 1e9)
        if not mass[0] <= mass[1]:
            raise ParameterOutOfRange(f"{entry.path}.mass [kg]", mass.tolist(), "the least mass before the largest")
        com = entry.number("com", "m", 0.0, 1e3)
        inertia = entry.number("inertia", "kg m^2", 0.0, 1e9)
        entry.finish()
        boxes.append(body_box(Box(*mass[:, None]), Box.around(believed.lever, com), believed.inertia, inertia))
    section.finish()
    return Box(*(np.concatenate([getattr(box, end) for box in boxes]) for end in ("lower", "upper")))


def body_box(mass: Box, com: Box, inertia: Array, deviation: float) -> Box:
    """Return the box of a body's inertial parameters from ranges of mass, CoM and inertia, by interval arithmetic.

    Args:
        mass: Range of its mass, (1,) [kg], not negative.
        com: Range of its CoM, (3,) [m].
        inertia: Nominal inertia about its CoM, (3, 3) [kg m^2].
        deviation: Largest error of each of its entries [kg m^2].

    Returns:
        Box of the parameters about the origin of its frame, (10,).
    """

    def times(a: Array, b: Array) -> Array:
        products = np.stack([a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]])
        return np.stack([products.min(axis=0), products.max(axis=0)])

    m, c = np.stack([mass.lower, mass.upper]), np.stack([com.lower, com.upper])
    squares = np.stack([np.where((c[0] < 0.0) & (c[1] > 0.0), 0.0, np.min(c**2, axis=0)), np.max(c**2, axis=0)])
    own = inertia + deviation * np.array([-1.0, 1.0])[:, None, None]
    entries = []
    for i, j in INERTIA_ENTRIES:
        if i == j:
            shift = times(m[:, 0], squares[:, [k for k in range(3) if k != i]].sum(axis=1))
        else:
            shift = -times(m[:, 0], times(c[:, i], c[:, j]))[::-1]
        entries.append(own[:, i, j] + shift)
    rows = np.concatenate([m, times(m, c), np.stack(entries, axis=1)], axis=1)
    slack = 1e-12 * np.abs(rows).max(axis=0)
    return Box(rows[0] - slack, rows[1] + slack)
