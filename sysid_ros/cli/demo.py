"""Shows the suite on an arm that needs no hardware: ``sysid demo``, and ``sysid demo --calibrate``.

The second shows what a calibration is worth: the simulated arm calibrates itself, then identifies a payload, with the
calibration and without. The robot file it writes for itself says that most of the torque error is a constant gain,
which a calibration can learn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from sysid_ros.cli import calibrate, identify
from sysid_ros.cli.exit_status import ExitStatus, run_command
from sysid_ros.cli.parse_calibration import calibrate_parser
from sysid_ros.cli.parse_suites import demo_parser, identify_parser
from sysid_ros.cli.suite import say
from sysid_ros.cli.terminal import make_table, show, working
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import AS_CALIBRATED, RobotModel, tool_transform
from sysid_ros.library.offline import identify_recording
from sysid_ros.reports.folders import ESTIMATE, make_results_directory
from sysid_ros.reports.payload import Bounded, in_frame, payload_parameters, summarize_payload
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.recording import RECORDING
from sysid_ros.reports.result import IdentificationResult

Array = NDArray[np.float64]

SERIAL_NUMBER = "simulated"
"""Serial number that is stated of the simulated arm."""
WEIGHT, TOLERANCE = 1.0, 0.002
"""Mass of the simulated reference weight and its largest error [kg]."""
WEIGHT_COM = (0.0, 0.0, 0.14)
"""Where its CoM is in the tool frame, to a centimetre [m]."""
MOTION_TIME, VALIDATION_TIME = 15.0, 5.0
"""How long the arm moves with each load, to be identified and to be predicted [s]."""
COMPARISON = "comparison.md"


def run(options: argparse.Namespace) -> int:
    """Identify, or calibrate, identify and compare; return the exit status.

    Raises:
        SysidError: The input cannot be used.
    """
    common = ["--mode", options.mode, "--seed", str(options.seed), "--payload", options.payload]
    alone = [*common, "--model", options.model, "--results", str(options.results)]
    view = [] if options.view_port == "0" else ["--view", options.view_port]
    if not options.calibrate:
        return identify.main([*alone, *view], command="sysid demo")
    # Everything of the three runs, before minutes of the first.
    identify.check_options(identify_parser().parse_args(alone), command="sysid demo")
    results = make_results_directory(options.results)
    model = options.model
    robot = load_robot(model)
    largest, gain = (
        100.0 * np.max(one) for one in (robot.sensors.effort_relative_error, robot.sensors.effort_gain_error)
    )
    say(f"assumed: of the torque error of {largest:g} %, {gain:g} % is a gain that stays the same")
    words = ["run", *common[:4], "--model", str(model), "--serial", SERIAL_NUMBER, "--weight", f"{WEIGHT}+-{TOLERANCE}"]
    words += ["--com", *map(str, WEIGHT_COM), "--motion-time", str(MOTION_TIME)]
    words += ["--validation-time", str(VALIDATION_TIME), "--results", str(results / "calibration")]
    status, known = calibrate.calibrate_by_motions(calibrate_parser().parse_args(words), "sysid demo")
    if status != ExitStatus.OK:
        return status
    words = [*common, "--serial", SERIAL_NUMBER, "--model", str(known), "--results", str(results / "payload"), *view]
    words += ["--gripper", AS_CALIBRATED] if AS_CALIBRATED in load_robot(known).gripper_states else []
    status = identify.main(words)
    if status != ExitStatus.OK:
        return status
    (folder,) = (results / "payload").iterdir()
    say("estimating once more from the same recording, without the calibration")
    with working("estimating"):
        found = compare(
            folder, [(name, load_robot(path)) for name, path in (("robot file alone", model), ("calibrated", known))]
        )
    title = "Bounds from this one recording: CoM in the tool frame, inertias about the frame of the last joint"
    show("", title, found.screen())
    (results / COMPARISON).write_text(found.markdown() + "\n", encoding="utf-8")
    show(f"Files: {results}")
    return ExitStatus.OK


@dataclass(frozen=True)
class Comparison:
    """What one recording says with several models of its arm.

    Attributes:
        names: Headings of the models.
        bounds: Of each model the lower and the upper bounds, each (7,) in the order of the rows.
        truth: True values (7,) where the arm was simulated, else None.
    """

    names: tuple[str, ...]
    bounds: tuple[tuple[Array, Array], ...]
    truth: Array | None

    def markdown(self) -> str:
        """Return all of it as a table in Markdown."""
        heads = ["", "unit", *(f"{name}: bounds" for name in self.names), *(f"{name}: +-" for name in self.names)]
        lines = ["| " + " | ".join([*heads, "truth"]) + " |", "|---|---|" + "---:|" * (len(heads) - 1)]
        for k, (name, unit) in enumerate(_ROWS):
            cells = [name, unit, *self._bounds_of(k), *(f"{radius:.4f}" for radius in self._radii_of(k))]
            lines.append("| " + " | ".join([*cells, self._truth_of(k)]) + " |")
        return "\n".join(lines)

    def screen(self) -> Table:
        """Return what fits a terminal: bounds, how much narrower the last are than the first, and the truth."""
        rows = []
        for k, (name, unit) in enumerate(_ROWS):
            radii = self._radii_of(k)
            narrower = f"{radii[0] / radii[-1]:.2f}x" if radii[-1] > 0.0 else ""
            rows.append((name.partition(",")[0], unit, *self._bounds_of(k), narrower, self._truth_of(k)))
        return make_table(("", "unit", *self.names, "narrower", "truth"), rows, left=2)

    def _bounds_of(self, row: int) -> list[str]:
        return [f"{lower[row]:.4f} to {upper[row]:.4f}" for lower, upper in self.bounds]

    def _radii_of(self, row: int) -> list[float]:
        return [0.5 * float(upper[row] - lower[row]) for lower, upper in self.bounds]

    def _truth_of(self, row: int) -> str:
        return "" if self.truth is None else f"{self.truth[row]:.4f}"


def compare(folder: Path, robots: Sequence[tuple[str, RobotModel]]) -> Comparison:
    """Estimate from one recording with several models of its arm, and put the bounds beside each other.

    Args:
        folder: Files of an identification.
        robots: Headings and models.

    Raises:
        SysidError: The recording cannot be read.
    """
    # Between calibration and goal nothing has moved the gripper of the simulated arm.
    states = [AS_CALIBRATED if AS_CALIBRATED in one.gripper_states else "" for _, one in robots]
    bounds = tuple(
        _bounds(identify_recording(read_recording(folder / RECORDING, one), one, EstimatorSettings(gripper=state)))
        for (_, one), state in zip(robots, states, strict=True)
    )
    return Comparison(tuple(name for name, _ in robots), bounds, _truth(folder, robots[0][1]))


_ROWS = (
    ("mass", "kg"), ("CoM x, tool frame", "m"), ("CoM y", "m"), ("CoM z", "m"), ("Ixx, last joint", "kg m^2"),
    ("Iyy", "kg m^2"), ("Izz", "kg m^2"),
)  # fmt: skip
_MOMENTS = (4, 6, 9)


def _bounds(result: IdentificationResult) -> tuple[Array, Array]:
    summary, parameters = summarize_payload(result, result.robot.tool_frame), payload_parameters(result)
    lower, upper = (
        np.concatenate(
            [[getattr(summary.mass, side)], getattr(summary.com, side), getattr(parameters, side)[list(_MOMENTS)]]
        )
        for side in ("lower", "upper")
    )
    return lower, upper


def _truth(folder: Path, robot: RobotModel) -> Array | None:
    """Return what the simulator knows, in the order of the rows; None where nobody does."""
    rows = read_yaml(folder / ESTIMATE)["estimate"]["parameters"]
    if "truth" not in rows[0]:
        return None
    theta = np.array([row["truth"] for row in rows])
    com = in_frame(Bounded(theta, theta, theta), tool_transform(robot)).values[1:4] / theta[0]
    return np.concatenate([theta[:1], com, theta[list(_MOMENTS)]])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its :class:`~sysid_ros.cli.exit_status.ExitStatus`."""
    return run_command(lambda: run(demo_parser().read(argv)))


if __name__ == "__main__":
    sys.exit(main())
