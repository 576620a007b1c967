"""Files of a free-flying robot: recordings are read; estimates of it and its load are written, as YAML and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
import yaml
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.settings import settings_of
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.model.inertia import to_com_form, transform_parameters
from sysid_ros.reports import pages, plots
from sysid_ros.reports.plots import Key, Plot
from sysid_ros.reports.recordings.mcap import read_messages
from sysid_ros.reports.recordings.options import InvalidRecording
from sysid_ros.reports.recordings.readers import Watch, read_all
from sysid_ros.reports.writer import software_versions
from sysid_ros.space.core.bounds import ObjectEstimate
from sysid_ros.space.core.identification import FreeFlyerIdentification, KnownRobot, ObjectIdentification, Part, Samples
from sysid_ros.space.core.measurements import Assumptions
from sysid_ros.space.core.minimal_parameters import build_minimal_parameters
from sysid_ros.space.core.robot import FreeFlyer

ODOMETRY, JOINTS = "nav_msgs/msg/Odometry", "sensor_msgs/msg/JointState"


def read_free_flyer_recording(path: Path | str, robot: FreeFlyer, watch: Watch = read_all) -> Samples:
    """Read odometry of the base and joint states of a recording (MCAP), matched by their stamps.

    Args:
        path: The file.
        robot: The robot; joints and wheels are matched by name.
        watch: Receives the progress, and may end it; the samples are those read by then.

    Raises:
        InvalidRecording: The file is missing, has no samples of this robot, or a twist is not its base's.
        DamagedRecording: It is no MCAP file.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidRecording(file, "the file", "missing", "a readable MCAP file")
    names = (*robot.joint_names, *robot.wheels.names)
    bases: dict[int, tuple[list[float], list[float], list[float]]] = {}
    joints: dict[int, tuple[list[float], list[float]]] = {}
    for entry in read_messages(file, (ODOMETRY, JOINTS), watch):
        message = entry.message
        stamp = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        if entry.type_name == ODOMETRY:
            if message.child_frame_id != robot.base_link:
                allowed = f"'{robot.base_link}', the base, in whose axes the twist has to be"
                raise InvalidRecording(file, "child_frame_id of the odometry", f"'{message.child_frame_id}'", allowed)
            linear, angular = message.twist.twist.linear, message.twist.twist.angular
            place, turn = message.pose.pose.position, message.pose.pose.orientation
            bases[stamp] = (
                [linear.x, linear.y, linear.z, angular.x, angular.y, angular.z],
                [turn.x, turn.y, turn.z, turn.w],
                [place.x, place.y, place.z],
            )
            continue
        missing = [name for name in names if name not in message.name]
        if missing:
            raise InvalidRecording(file, "the joints", ", ".join(message.name), f"all of {', '.join(names)}")
        order = [list(message.name).index(name) for name in names]
        joints[stamp] = [message.position[k] for k in order], [message.velocity[k] for k in order]
    stamps = sorted(bases.keys() & joints.keys())
    if len(stamps) < 2:
        found = f"{len(bases)} of {ODOMETRY}, {len(joints)} of {JOINTS}, {len(stamps)} with equal stamps"
        raise InvalidRecording(file, "the samples", found, "odometry of the base and joint states with equal stamps")
    times = 1e-9 * (np.array(stamps) - stamps[0])
    q, v = (np.array([joints[stamp][k] for stamp in stamps]) for k in range(2))
    twist, turns, positions = (np.array([bases[stamp][k] for stamp in stamps]) for k in range(3))
    rotations = np.stack([pin.Quaternion(turn).normalized().toRotationMatrix() for turn in turns])
    return Samples(times, twist, q, v, rotations, positions)


Array = NDArray[np.float64]

ESTIMATE, REPORT, RECORDING = "estimate.yaml", "report.html", "recording.mcap"
_HEAD = "# Minimal parameters of a free-flying robot, which determine its momentum, see docs/howto/space_robot.md\n"
_OBJECT_HEAD = "# What a free-flying robot holds, see docs/howto/space_robot.md\n"


@dataclass(frozen=True, eq=False)
class SimulationTruth:
    """Truth of a simulated robot; only compared with.

    Attributes:
        parameters: Inertial parameters of the robot itself, (10 B,).
        held: Addition by an object in its hand, (10 B,); zeros without one.
        drift: Largest change of momentum since the start or the last catch, (6,) [kg m/s, kg m^2/s]; None if unknown.
    """

    parameters: Array
    held: Array
    drift: Array | None = None

    def held_in(self, robot: FreeFlyer, frame: str) -> Array | None:
        """Return the parameters of the object in a frame, (10,); None where the body of the frame has none."""
        body, placement = robot.frame(frame)
        part = self.held[10 * body : 10 * (body + 1)]
        if not np.any(part):
            return None
        back = placement.inverse()
        return transform_parameters(part, back.rotation, back.translation)


def write_free_flyer(
    result: FreeFlyerIdentification, directory: Path, simulation: SimulationTruth | None = None
) -> None:
    """Write estimate and page of an identification.

    Args:
        result: The result.
        directory: An existing folder.
        simulation: Truth of a simulated robot, for comparison.

    Raises:
        SysidError: A file cannot be written.
    """
    _write(directory, free_flyer_yaml(result, simulation), free_flyer_html(result, simulation))


def write_held_object(result: ObjectIdentification, directory: Path, simulation: SimulationTruth | None = None) -> None:
    """Write estimate and page of the load of a robot; see :func:`write_free_flyer`."""
    _write(directory, held_object_yaml(result, simulation), held_object_html(result, simulation))


def read_known_robot(path: Path | str, robot: FreeFlyer) -> KnownRobot:
    """Read the bounds of a robot from ``estimate.yaml`` of an earlier identification.

    Raises:
        SysidError: It cannot be read, is of another robot, or has no bounds.
    """
    file, minimal = Path(path), build_minimal_parameters(robot.tree)
    try:
        content = read_yaml(file)
        rows = {row["name"]: row for row in content["minimal_parameters"]}
        values, lower, upper = (
            np.array([float(rows[name][key]) for name in minimal.names]) for key in ("value", "lower", "upper")
        )
        return KnownRobot(values, Box(lower, upper))
    except KeyError as error:
        raise SysidError(
            f"{file} is no estimate with guaranteed bounds of this robot",
            f"{error} is missing; names needed are {', '.join(minimal.names[:3])}, ...",
        ) from (error)
    except (TypeError, ValueError) as error:
        raise SysidError(f"{file} is no estimate with guaranteed bounds of this robot", str(error)) from error


def free_flyer_yaml(result: FreeFlyerIdentification, simulation: SimulationTruth | None) -> str:
    """Return the estimate as YAML, each number with its unit."""
    truth, bounds, rows = _minimal_truth(result, simulation), result.bounds, []
    for k, name in enumerate(result.minimal.names):
        row: dict[str, Any] = {
            "name": name,
            "combination": result.minimal.describe(k),
            "unit": result.minimal.units[k],
            "value": float(result.estimate.values[k]),
            "standard_deviation": float(result.estimate.deviations[k]),
            "before": float(result.believed[k]),
        }
        if bounds is not None:
            row |= {"lower": float(bounds.box.lower[k]), "upper": float(bounds.box.upper[k])}
            row |= {"prior_lower": float(bounds.prior.lower[k]), "prior_upper": float(bounds.prior.upper[k])}
        if truth is not None:
            row["truth"] = float(truth[k])
        rows.append(row)
    content = {
        "robot": result.task.robot.name,
        "method": result.task.settings.method.value,
        **_motion_facts(result.parts, len(result.data), result.condition_number),
        "residual": {
            "linear_momentum": {"unit": "kg m/s", "rms": float(result.residual[0])},
            "angular_momentum": {"unit": "kg m^2/s", "rms": float(result.residual[1])},
        },
        "momentum": {
            "is_known_to_be_zero": result.task.assumptions.is_momentum_zero,
            "units": "kg m/s, kg m^2/s",
            "values": result.estimate.momentum.tolist(),
        },
        "guarantee": "" if bounds is None else bounds.guarantee,
        "alarm": "" if result.inconsistency is None else str(result.inconsistency),
        "assumptions": _assumptions(result.task.assumptions),
        **_simulation_facts(simulation),
        "minimal_parameters": rows,
        "versions": software_versions(),
    }
    return _HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def held_object_yaml(result: ObjectIdentification, simulation: SimulationTruth | None) -> str:
    """Return the estimate of an object as YAML, each number with its unit."""
    found = result.estimate
    content: dict[str, Any] = {
        "robot": result.task.robot.name,
        "frame": result.settings.frame or result.task.robot.tool,
        "is_consistent": result.inconsistency is None,
        "alarm": "" if result.inconsistency is None else str(result.inconsistency),
        **_motion_facts(result.parts, len(result.data), result.condition_number),
        "guarantee": "" if found is None else found.bounds.guarantee,
        "assumptions": _assumptions(result.task.assumptions),
        "prior": {
            "mass": {"unit": "kg", "upper": result.settings.mass},
            "reach": {"unit": "m", "upper": result.settings.reach},
        },
        "recordings_before_the_catch": len(result.known_robot.recordings),
        **_simulation_facts(simulation),
    }
    if found is not None:
        truth = None if simulation is None else simulation.held_in(result.task.robot, found.frame)
        content |= {row["name"]: {key: row[key] for key in row if key != "name"} for row in _body_rows(found, truth)}
        box, prior = found.bounds.box, found.bounds.prior
        content["parameters"] = [
            {
                "name": name,
                "unit": found.bounds.units[k],
                "value": float(found.values[k]),
                "lower": float(box.lower[k]),
                "upper": float(box.upper[k]),
                "prior_lower": float(prior.lower[k]),
                "prior_upper": float(prior.upper[k]),
                **({} if truth is None else {"truth": float(truth[k])}),
            }
            for k, name in enumerate(found.bounds.names)
        ]
    content["versions"] = software_versions()
    return _OBJECT_HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def free_flyer_html(result: FreeFlyerIdentification, simulation: SimulationTruth | None) -> str:
    """Return the page as one self-contained text."""
    estimate, minimal, bounds = result.estimate, result.minimal, result.bounds
    truth = _minimal_truth(result, simulation)
    rows = [
        {
            "name": minimal.describe(k),
            "unit": minimal.units[k],
            "value": f"{estimate.values[k]:.4g}",
            "deviation": f"{estimate.deviations[k]:.2g}",
            "bounds": "" if bounds is None else _interval(bounds.box.lower[k], bounds.box.upper[k]),
            "narrowed": "" if bounds is None else f"{100.0 * bounds.box.width[k] / bounds.prior.width[k]:.0f} %",
            "before": f"{result.believed[k]:.4g}",
            "truth": "" if truth is None else f"{truth[k]:.4g}",
        }
        for k in range(minimal.count)
    ]
    facts = [
        ("Minimal parameters", str(minimal.count), "", f"of {minimal.matrix.shape[1]} inertial parameters"),
        ("Condition number", f"{result.condition_number:.0f}", "", "of all data"),
        ("Samples", str(len(result.data)), "", f"in {len(result.parts) or 'unknown'} parts of the motion"),
        ("Momentum left", f"{result.residual[0]:.2g}", "kg m/s", f"and {result.residual[1]:.2g} kg m²/s"),
    ]
    if bounds is not None:
        mass, share = minimal.names.index("base.m"), np.median(bounds.box.width / bounds.prior.width)
        facts.append(
            ("Mass of the robot", _interval(bounds.box.lower[mass], bounds.box.upper[mass]), "kg", "guaranteed")
        )
        facts.append(("Bounds", f"{100.0 * share:.0f}", "%", "of the width of the prior, median"))
    if truth is not None:
        errors = np.abs(estimate.values - truth) / np.maximum(np.abs(truth), 1e-12)
        facts.append(("Median error", f"{100 * np.median(errors):.2g}", "%", "against the simulated robot"))
    return pages.render(
        "free_flyer.html",
        name=result.task.robot.name,
        facts=facts,
        rows=rows,
        has_truth=truth is not None,
        guarantee="" if bounds is None else bounds.guarantee,
        alarm="" if result.inconsistency is None else str(result.inconsistency),
        parts=_part_rows(result.parts),
        figure=_figure(result, truth),
        method=result.task.settings.method.value,
        settings=_entries(result.task.assumptions, simulation),
    )


def held_object_html(result: ObjectIdentification, simulation: SimulationTruth | None) -> str:
    """Return the page of an object as one self-contained text."""
    found, truth = result.estimate, None
    facts, rows, quantities = list[tuple[str, ...]](), list[dict[str, str]](), list[dict[str, Any]]()
    if found is not None:
        truth = None if simulation is None else simulation.held_in(result.task.robot, found.frame)
        box, prior = found.bounds.box, found.bounds.prior
        com = found.com_box
        facts = [("Mass", f"{found.mass:.3g}", "kg", f"certainly {_interval(box.lower[0], box.upper[0])} kg")]
        for k, axis in enumerate("xyz"):
            certain = "not bounded: perhaps it weighs nothing"
            if np.isfinite(com.lower[k]):
                certain = f"certainly {_interval(1e3 * com.lower[k], 1e3 * com.upper[k])} mm"
            facts.append((f"CoM {axis}", f"{1e3 * found.com[k]:.0f}", "mm", certain))
        quantities = _body_rows(found, truth)
        rows = [
            {
                "name": name,
                "unit": found.bounds.units[k],
                "value": f"{found.values[k]:.4g}",
                "bounds": _interval(box.lower[k], box.upper[k]),
                "narrowed": f"{100.0 * box.width[k] / prior.width[k]:.1f} %",
                "budget": ", ".join(
                    f"{term} {100.0 * share[k] / max(box.radius[k], 1e-300):.0f} %"
                    for term, share in found.bounds.error_budget.items()
                    if share[k] > 0.05 * box.radius[k]
                ),
                "truth": "" if truth is None else f"{truth[k]:.4g}",
            }
            for k, name in enumerate(found.bounds.names)
        ]
    return pages.render(
        "held_object.html",
        name=result.task.robot.name,
        frame=result.settings.frame or result.task.robot.tool,
        facts=facts,
        quantities=[row for row in quantities if row["name"] == "inertia_about_com"],
        rows=rows,
        has_truth=truth is not None,
        guarantee="" if found is None else found.bounds.guarantee,
        alarm="" if result.inconsistency is None else str(result.inconsistency),
        parts=_part_rows(result.parts),
        figure=_object_figure(result, truth),
        settings={
            "largest mass": f"{result.settings.mass:g} kg",
            "within": f"{result.settings.reach:g} m of the frame",
            "recordings before the catch": len(result.known_robot.recordings),
            **_entries(result.task.assumptions, simulation),
        },
    )


def _write(directory: Path, estimate: str, page: str) -> None:
    for name, text in ((ESTIMATE, estimate), (REPORT, page)):
        try:
            (directory / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SysidError(f"cannot write {directory / name}: {error.strerror or error}") from error


def _minimal_truth(result: FreeFlyerIdentification, simulation: SimulationTruth | None) -> Array | None:
    return None if simulation is None else result.minimal.values(simulation.parameters + simulation.held)


def _motion_facts(parts: tuple[Part, ...], samples: int, condition_number: float) -> dict[str, Any]:
    return {
        "samples": samples,
        "seconds": round(float(sum(part.end - part.begin for part in parts)), 3),
        "condition_number": float(condition_number),
        "parts": [
            {
                "intervals": part.intervals,
                "condition_number_planned": float(part.planned),
                "condition_number_reached": float(part.reached),
            }
            for part in parts
        ],
    }


def _assumptions(assumptions: Assumptions) -> dict[str, Any]:
    units = settings_of(Assumptions)
    return {name: {"unit": units[name].unit, "value": value} for name, value in asdict(assumptions).items()}


def _simulation_facts(simulation: SimulationTruth | None) -> dict[str, Any]:
    if simulation is None or simulation.drift is None:
        return {}
    return {"simulation": {"momentum_drift": {"units": "kg m/s, kg m^2/s", "values": simulation.drift.tolist()}}}


def _body_rows(found: ObjectEstimate, truth: Array | None) -> list[dict[str, Any]]:
    box, rows = found.bounds.box, []
    mass, com, inertia = to_com_form(found.values) if np.all(np.isfinite(found.values)) else (np.nan,) * 3
    true = (None,) * 3 if truth is None else to_com_form(truth)
    for name, unit, value, lower, upper, real in (
        ("mass", "kg", mass, box.lower[0], box.upper[0], true[0]),
        ("com", "m", com, found.com_box.lower, found.com_box.upper, true[1]),
        ("inertia_about_com", "kg m^2", inertia, None, None, true[2]),
    ):
        row = {"name": name, "unit": unit, "value": np.asarray(value, dtype=float).tolist()}
        if lower is not None and upper is not None:
            row |= {"lower": np.asarray(lower).tolist(), "upper": np.asarray(upper).tolist()}
        if real is not None:
            row["truth"] = np.asarray(real).tolist()
        rows.append(row)
    return rows


def _interval(lower: float, upper: float) -> str:
    """Return an interval with digits by its width, rounded outwards: the printed interval is a bound too."""
    if not np.isfinite(lower) or not np.isfinite(upper):
        return f"{lower:g} to {upper:g}"
    digits = max(0, int(np.ceil(1.0 - np.log10(max(upper - lower, 1e-9)))))
    scale = 10.0**digits
    ends = np.floor(lower * scale) / scale + 0.0, np.ceil(upper * scale) / scale + 0.0  # no negative zeros
    return f"{ends[0]:.{digits}f} to {ends[1]:.{digits}f}"


def _part_rows(parts: tuple[Part, ...]) -> list[tuple[object, ...]]:
    return [
        (k + 1, part.intervals, f"{part.planned:.1f}", f"{part.reached:.1f}", f"{part.gap:.3f}")
        for k, part in enumerate(parts)
    ]


def _entries(assumptions: Assumptions, simulation: SimulationTruth | None) -> dict[str, str]:
    units = settings_of(Assumptions)
    shown = {name.replace("_", " "): f"{value:g} {units[name].unit}".rstrip(" -")
             for name, value in asdict(assumptions).items()}  # fmt: skip
    if simulation is not None and simulation.drift is not None:
        linear, angular = np.abs(simulation.drift).reshape(2, 3).max(axis=1)
        shown["drift of the simulation's momentum"] = f"{linear:.1e} kg m/s, {angular:.1e} kg m²/s"
    return {**shown, **software_versions()}


def _figure(result: FreeFlyerIdentification, truth: Array | None) -> str:
    data = result.data
    times = np.arange(len(data)) * float(np.median(np.diff(data.times)))
    groups = (
        (((1e3 * data.base_twist[:, :3], "base velocity [mm/s]"),
          (1e3 * data.base_twist[:, 3:], "base angular velocity [mrad/s]")), ("x", "y", "z")),
        (((data.q, "joint positions [rad]"),), result.task.robot.joint_names),
    )  # fmt: skip
    drawings = []
    for k, (motions, names) in enumerate(groups):
        drawn = [_draw_lines(times, values, label, names) for values, label in motions]
        drawings.append(plots.inline_plots(f"motion{k}", f"Motion of the {('base', 'joints')[k]}", drawn, _keys(names)))
    scale = np.maximum(np.abs(result.estimate.values), 1e-12)
    curves = [
        ("change from before", np.abs(result.believed - result.estimate.values) / scale, "dot", plots.ACCENT),
        ("standard deviation", result.estimate.deviations / scale, "dash", plots.WARN),
    ]
    if result.bounds is not None:
        curves.append(("radius of the guaranteed bounds", result.bounds.box.radius / scale, "square", plots.MUTED))
    if truth is not None:
        wrong = np.abs(result.estimate.values - truth) / scale  # the truth may be zero
        curves.append(("true error", np.maximum(wrong, 1e-9), "cross", plots.TRUTH))
    plot = Plot("relative to the estimate [-]", plots.WIDE, x_label="minimal parameter", logs="y")
    for _, values, shape, color in curves:
        plot.marks(np.arange(1, result.minimal.count + 1), values, color, shape)
    keys = [Key(label, color, shape) for label, _, shape, color in curves]
    return "".join([*drawings, plots.inline_plots("learnt", "Information on each parameter", [plot], keys)])


def _draw_lines(times: ArrayLike, values: ArrayLike, label: str, names: Sequence[str]) -> Plot:
    plot = Plot(label, plots.WIDE)
    for j, key in enumerate(_keys(names)):
        plot.line(*plots.envelope(np.asarray(times), np.asarray(values)[:, j]), key.color, 0.9, label=key.label)
    return plot


def _keys(names: Sequence[str]) -> list[Key]:
    return [Key(name, plots.SERIES[j % len(plots.SERIES)]) for j, name in enumerate(names)]


def _object_figure(result: ObjectIdentification, truth: Array | None) -> str:
    data, found, names = result.data, result.estimate, result.task.robot.joint_names
    times = np.arange(len(data)) * float(np.median(np.diff(data.times)))
    motion = _draw_lines(times, data.q, "joint positions [rad]", names)
    drawings = [plots.inline_plots("object", "Motion of the joints", [motion], _keys(names))]
    if found is not None:
        box, prior = found.bounds.box, found.bounds.prior
        curves = [("radius of the guaranteed bounds", box.radius / prior.radius, "dot", plots.ACCENT)]
        if truth is not None:
            wrong = np.maximum(np.abs(found.values - truth) / prior.radius, 1e-9)
            curves.append(("true error of the estimate", wrong, "cross", plots.TRUTH))
        plot = Plot(
            "ten parameters of the object", plots.WIDE, x_label="share of the radius of the prior [-]", logs="x"
        )
        plot.y_names = found.bounds.names
        for _, values, shape, color in curves:
            plot.marks(values, np.arange(10), color, shape)
        keys = [Key(label, color, shape) for label, _, shape, color in curves]
        drawings.append(plots.inline_plots("prior", "Bounds of the object beside its prior", [plot], keys))
    return "".join(drawings)
