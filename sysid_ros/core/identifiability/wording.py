"""Results of the structural analysis in words and symbols."""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.identifiability.structure import BodySummary, Class, Structure
from sysid_ros.core.model.inertia import PARAMETER_NAMES

Array = NDArray[np.float64]

MINUS = "−"
_RANK_TOLERANCE = 1e-6
_TERMS = 8
"""Terms of a combination that a sentence lists; files list all."""


class Symbol(Enum):
    """Symbols of the tables (RPNA table 3) and their meaning."""

    IDENTIFIABLE = "★"
    CHOSEN = "●"
    COMBINED = "○"
    UNIDENTIFIABLE = "✕"
    NONE = " "

    @property
    def meaning(self) -> str:
        """Meaning of the symbol."""
        return {
            Symbol.IDENTIFIABLE: "identifiable on its own",
            Symbol.CHOSEN: "identifiable in combination with others, base parameter",
            Symbol.COMBINED: "identifiable in combination with others, part of base parameters",
            Symbol.UNIDENTIFIABLE: "unidentifiable",
            Symbol.NONE: "not unknown, or not a parameter of this joint",
        }[self]


def symbol_of(structure: Structure, parameter: int) -> Symbol:
    """Return the symbol of a parameter."""
    kind = structure.classes[parameter]
    if kind is Class.IN_COMBINATION:
        return Symbol.CHOSEN if parameter in structure.chosen else Symbol.COMBINED
    return Symbol.IDENTIFIABLE if kind is Class.IDENTIFIABLE else Symbol.UNIDENTIFIABLE


def symbol_table(structure: Structure) -> list[tuple[str, tuple[Symbol, ...]]]:
    """List the rows of the paper's table: name of the parameter, then its symbol for each body.

    Source: RPNA tables 2, 4, 5.
    """
    rows = dict.fromkeys([*PARAMETER_NAMES, *map(_parameter, structure.names)])
    cells = {name: [Symbol.NONE] * len(structure.bodies) for name in rows}
    for k, name in enumerate(structure.names):
        cells[_parameter(name)][structure.body_of[k]] = symbol_of(structure, k)
    return [(name, tuple(row)) for name, row in cells.items()]


def _parameter(name: str) -> str:
    return name.rsplit(".", 1)[1]


def describe_combination(structure: Structure, base: int, most: int | None = None) -> str:
    """Write a base parameter out in SI units, such as ``joint_6.Ixx − joint_6.Iyy + 0.05 joint_7.m``.

    ``most`` limits the number of terms; all by default.
    """
    row, own = structure.matrix[base], structure.chosen[base]
    others = [k for k in np.flatnonzero(row) if k != own]
    text = structure.names[own]
    listed = others if most is None or len(others) <= most else others[: most - 1]
    for k in listed:
        text += f" {MINUS if row[k] < 0 else '+'} {_factor(abs(float(row[k])))}{structure.names[k]}"
    return text + (f" and {len(others) - len(listed)} more terms" if len(listed) < len(others) else "")


def _factor(value: float) -> str:
    if abs(value - 1.0) < 1e-9:
        return ""
    return f"{value:.0f} " if 1e4 <= value < 1e7 else f"{value:.4g} "


def explain(structure: Structure, parameter: int) -> str:
    """Write one sentence on a parameter: its identifiable combination, or why it is not."""
    name = structure.names[parameter]
    kind = structure.classes[parameter]
    if kind is Class.IDENTIFIABLE:
        return f"{name} can be known on its own."
    if kind is Class.UNIDENTIFIABLE:
        return f"{name} cannot be known: {_reason(structure, parameter)}."
    if parameter in structure.chosen:
        row = structure.chosen.index(parameter)
        return f"{name} is only seen together with others, as {describe_combination(structure, row, _TERMS)}."
    column = structure.matrix[:, parameter]
    rows = np.flatnonzero(column)
    parts = [
        f"{MINUS if column[r] < 0 else ''}{_factor(abs(float(column[r]))) or '1 '}in the base parameter "
        f"{structure.base_names[r]}"
        for r in rows[:_TERMS]
    ]
    more = f" and {len(rows) - _TERMS} more" if len(rows) > _TERMS else ""
    return f"{name} is only seen together with others: it counts {', '.join(parts)}{more}."


def _reason(structure: Structure, parameter: int) -> str:
    settings, body = structure.settings, structure.bodies[structure.body_of[parameter]]
    name = _parameter(structure.names[parameter])
    if name in ("F_c", "F_v", "I_a", "beta"):
        if not settings.sees_joints:
            return "friction, armature and torque offset act inside the robot, and only the wrench under it is measured"
        return "static experiments have no motion"
    if name.startswith(("rotor_", "I_m")):
        return "the rotor affects no measured force beyond the effect of its joint's body"
    what = "weight" if settings.is_static else "kinetic energy or weight"
    return f"{describe_motion(structure, body)}, so {name} never shows up in {what} that a measured force feels"


def describe_motion(structure: Structure, body: BodySummary) -> str:
    """Describe the motion of a body by its attainable velocities and gravity, like ``the body only turns about z``."""
    linear, angular = body.velocities[:3], body.velocities[3:]
    if not body.velocities.size:
        return "the body never moves"
    turning = _directions(angular)
    moving = _directions(linear)
    gravity = " (gravity included)" if np.any(structure.tree.gravity) else ""
    turns = {0: "the body does not turn", 3: "the body turns about all axes"}.get(
        len(turning), f"the body only turns about {' and '.join(turning)}"
    )
    moves = {
        0: f"the origin of its frame is never accelerated{gravity}",
        3: f"the origin of its frame is accelerated in all directions{gravity}",
    }.get(len(moving), f"the origin of its frame is only accelerated along {' and '.join(moving)}{gravity}")
    return f"{turns} and {moves}"


def _directions(vectors: Array) -> list[str]:
    """Return a basis of the span of vectors (3, k), coordinate axes by name where they span it."""
    left, values, _ = np.linalg.svd(vectors)
    rank = int(np.count_nonzero(values > _RANK_TOLERANCE))
    basis = left[:, :rank]
    inside = [axis for axis in range(3) if np.linalg.norm(basis.T[:, axis]) > 1.0 - _RANK_TOLERANCE]
    if len(inside) == rank:
        return ["xyz"[axis] for axis in inside]
    return ["(" + ", ".join(f"{x + 0.0:.3g}" for x in column.round(6)) + ")" for column in basis.T]


def summarize(structure: Structure) -> str:
    """Write the answer in a few sentences."""
    counts = {kind: sum(found is kind for found in structure.classes) for kind in Class}
    names = structure.tree.name or "the robot"
    settings = structure.settings
    seen = {
        "generalized_forces": "all joint torques"
        + (" and the wrench on the floating base" if structure.tree.is_floating else ""),
        "joint_torques": "the joint torques",
        "base_wrench": "force and torque under the base only",
        "joints_and_base": "joint torques and force and torque under the base",
        "ballistic": "all joint torques without forces on the base",
    }[settings.measured]
    how = "static postures" if settings.is_static else "any motion"
    gravity = np.array(structure.tree.gravity)
    pull = f"gravity along ({', '.join(f'{x:.4g}' for x in gravity)}) m/s^2" if np.any(gravity) else "no gravity"
    return (
        f"{names} has {structure.count} base parameters out of {len(structure.names)} unknown ones, from {seen} in "
        f"{how}, with {pull}: {counts[Class.IDENTIFIABLE]} parameters can be known on their own, "
        f"{counts[Class.IN_COMBINATION]} only in combination with others, {counts[Class.UNIDENTIFIABLE]} not at all."
    )
