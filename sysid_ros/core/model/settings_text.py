"""Writes settings of an arm as a commented file, for :func:`~.loader.load_robot` and for people to improve."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

_HEADER = (
    "{name}: written by `sysid new-robot` from {urdf}. Every number has its unit. What the URDF does not say is "
    "ASSUMED, within wide boxes: bounds of a payload are guaranteed only if the truth of this very arm lies inside. "
    "Narrow what you know, and calibrate the arm (`sysid calibrate`)."
)
_COMMENTS = {
    "frames": "Links: the fixed base, where tools are mounted, where a payload is held (reports express it there).",
    "gravity": "m/s^2, in the base frame; change it for a tilted or hanging mount.",
    "rated_payload": "kg, of the data sheet.",
    "joints": "home, position [rad], velocity [rad/s], acceleration [rad/s^2], torque [Nm]. Position, velocity and "
    "torque may tighten the URDF's limits; acceleration is not in a URDF: top speed within 0.25 s is assumed.",
    "friction": "[F_c [Nm], F_v [Nm s/rad], I_a [kg m^2], beta [Nm]]: Coulomb, viscous, armature, torque offset. "
    "Unknown: from zero up to a share of the torque limit. A sensor on the link side sees only beta.",
    "inertial_uncertainty": "How wrong the URDF's inertias may be: a share of each parameter, and for what each joint "
    "moves ten numbers more: m [kg], mc [kg m], I [kg m^2] in the order m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, "
    "Iyz, Izz; or, in place of all these, their range.",
    "sensors": "effort_meaning: motor_side (currents times torque constants), gear_side (joint torque sensors that "
    "feel friction, but no rotor) or link_side (those behind the gear that feel neither). effort_sign: -1 where the "
    "vendor sends reactions; only hardware drivers use it. effort_is_held: a sample is the mean since the one before; "
    "false for the value at the stamp. Errors are the largest that occur.",
    "payload_priors": "What may be in the hand: mass [kg], centre of mass [m] in the tool frame, largest radius of "
    "gyration about any axis through it [m]. Narrower is better, as long as it is true.",
    "spheres": "Collision spheres: x, y, z, radius [m] in the frame of the link. Nothing is planned for links without.",
    "assumptions": "Sentences for reports.",
}
_WIDTH = 116


@dataclass(frozen=True)
class SettingsNotes:
    """Text of a settings file besides its numbers.

    Attributes:
        name: Name of the arm.
        urdf: Path of the URDF, as the file names it.
        origin: The URDF, in words.
        more: Further comments by section, a line each.
    """

    name: str
    urdf: str
    origin: str
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)


def settings_text(settings: Mapping[str, Any], notes: SettingsNotes) -> str:
    """Return a settings file with a comment on every section, from :func:`~.defaults.default_settings`."""
    blocks = ["\n".join(_comment(_HEADER.format(name=notes.name, urdf=notes.origin)))]
    for key, value in {"urdf": notes.urdf, **settings}.items():
        lines = [line for text in [_COMMENTS.get(key, ""), *notes.more.get(key, ())] for line in _comment(text)]
        blocks.append("\n".join([*lines, _block(key, value)]))
    return "\n\n".join(blocks) + "\n"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)


class _Dumper(yaml.SafeDumper):
    """Mappings and lists without others inside on one line, numbers as short as they are exact."""


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    if not math.isfinite(value):
        return dumper.represent_scalar(
            "tag:yaml.org,2002:float", {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
        )
    text = repr(float(f"{value:.10g}"))
    if "e" in text and "." not in text.split("e")[0]:  # YAML 1.1 takes 1e-05 for a text
        text = text.replace("e", ".0e")
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _represent_float)


def _block(key: str, value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(entry, str) for entry in value):
        return "\n".join([f"{key}:", *(f"  - {json.dumps(entry, ensure_ascii=False)}" for entry in value)])
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=_WIDTH)
    text = text.removesuffix("...\n").rstrip()
    is_nested = isinstance(value, Mapping | list) and not text.startswith(("{", "["))
    return f"{key}:\n" + textwrap.indent(text, "  ") if is_nested else f"{key}: {text}"
