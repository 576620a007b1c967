"""Textbook arms: shipped robots, but with the small uncertainties and errors that are pinned here.

What tests an algorithm runs on them, so it stays as it is when the shipped files follow what is known of real arms.
"""

import atexit
import functools
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.robot_files import find_settings

GEN3 = "kinova_gen3_2f85"
KEPT = "effort_sign effort_is_held position_resolution velocity_error velocity_is_difference stamp_jitter".split()
"""What the textbook arm has of the shipped one's sensors."""
VIBRATION = {"effort_relative_error": 0.03, "effort_gain_error": 0.025}
SENSORS = {
    "kinova": {
        "effort_meaning": "motor_side",
        "effort_absolute_error": [2.0, 5.0, 1.0, 2.5, 0.5, 0.8, 0.4],
        "effort_mean_error": [0.075, 0.125, 0.025, 0.075, 0.01, 0.015, 0.01],
        "effort_integral_error": [0.0375, 0.0625, 0.0125, 0.0375, 0.005, 0.0075, 0.005],
    },
    "kuka": {
        "effort_meaning": "link_side",
        "effort_absolute_error": [1.5, 5.0, 1.5, 3.5, 0.5, 1.0, 0.3],
        "effort_mean_error": [0.05, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05],
        "effort_integral_error": [0.025, 0.05, 0.025, 0.025, 0.025, 0.025, 0.025],
    },
}
LARGE = {"nominal": [0.5, 1.0, 0.25, 0.0], "radius": [0.05, 0.1, 0.0125, 0.05]}
SMALL = {"nominal": [0.15, 0.3, 0.1, 0.0], "radius": [0.015, 0.03, 0.005, 0.02]}
FRICTION = {f"joint_{k}": LARGE if k < 5 else SMALL for k in range(1, 8)}
ANY_STATE = [0.0, 3.0e-6, 1.0e-6, 3.8e-3, 1.2e-3, 3.0e-6, 6.5e-4, 1.5e-6, 2.0e-6, 5.3e-4]
"""How far the last body with a gripper in any state is from the one with it open, in the order of the settings."""
STATES = {
    "open": [0.0, 3.6e-7, 1.0e-8, 3.7e-4, 1.14e-4, 1.1e-7, 7.9e-5, 9.7e-8, 1.08e-7, 3.5e-5],
    "closed": [0.0, 2.8e-7, 1.0e-8, 5.5e-4, 1.67e-4, 6.1e-7, 6.15e-5, 1.0e-7, 1.65e-7, 1.105e-4],
}


@functools.cache
def textbook_file(name: str = GEN3) -> str:
    """The textbook arm as nodes and commands take it: the path of its settings, with what follows the name."""
    name, *said = name.split(":", 1)
    shipped = find_settings(name)
    path, values = _folder() / shipped.name, read_yaml(shipped)
    kind = shipped.stem.partition("_")[0]
    values["urdf"] = str((shipped.parent / values["urdf"]).resolve())
    values["sensors"] = {key: values["sensors"][key] for key in KEPT if key in values["sensors"]}
    values["sensors"] |= VIBRATION | SENSORS[kind]
    if kind == "kinova":
        values["friction"] = FRICTION
        values["inertial_uncertainty"] = {"relative": 0.05}
        if "gripper" in values:
            values["gripper"]["any_state"] = ANY_STATE
            for state, radius in STATES.items():
                values["gripper"][state]["radius"] = radius
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return ":".join([str(path), *said])


@functools.cache
def load_textbook(name: str = GEN3, **options):
    """The textbook arm of that name, with what may follow the name of a robot, and options of ``load_robot``."""
    return load_robot(textbook_file(name), **options)


def with_sensors(robot: RobotModel, **changes) -> RobotModel:
    """The robot with other sensors; numbers are broadcast to the joints."""
    single = ("effort_is_held", "stamp_jitter", "effort_meaning")
    values = {name: one if name in single else np.full(robot.n, float(one)) for name, one in changes.items()}
    return replace(robot, sensors=replace(robot.sensors, **values))


def load_steady(name: str = GEN3) -> RobotModel:
    """A textbook arm whose torques do not vibrate: within 2.5 % of any sign at any time (SAFE-ID section VI)."""
    robot = load_textbook(name)
    absolute = 0.02 if robot.sensors.effort_meaning.has_friction else 0.1
    bounds = {"effort_gain_error": 0.0, "effort_absolute_error": absolute, "effort_mean_error": np.inf}
    return with_sensors(robot, effort_relative_error=0.025, **bounds)


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="textbook_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
