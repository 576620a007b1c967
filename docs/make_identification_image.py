"""Draws docs/images/identification.png: bounds that shrink while the arm moves.

The data are those of a real run, kept in docs/images/identification.json. With a recording of another run as argument
(``python docs/make_identification_image.py results/<time>/recording.mcap``) they are taken from that.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from mpl_toolkits.mplot3d.art3d import Line3DCollection

from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import BodyPoses

IMAGE = Path(__file__).with_name("images") / "identification.png"
DATA = IMAGE.with_suffix(".json")
BAND, LINE, TRUTH, ARM = "#9cd3cb", "#00796b", "#d84315", "#78909c"
CURVES = ((0, "mass", "kg", 1.0), (2, "first moment y", "g m", 1e3), (3, "first moment z", "g m", 1e3))
"""Index of a parameter, its name, unit and scale, for the curves."""


def read(recording: Path) -> dict:
    """Return bounds, truth and postures of a recorded run."""
    estimates, joints, truth = [], [], None
    with recording.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for _, channel, record, message in reader.iter_decoded_messages():
            seconds = 1e-9 * record.log_time
            if channel.topic.endswith("/estimator/estimate") and message.is_consistent and message.number_of_windows:
                estimates.append((seconds, message.data_seconds, list(message.lower), list(message.upper)))
            elif channel.topic.endswith("joint_states"):
                joints.append((seconds, dict(zip(message.name, message.position, strict=True))))
            elif channel.topic.endswith("/arm_driver/truth"):
                truth = message
    robot = load_robot("kinova_gen3_2f85")
    times = np.array([time for time, _ in joints])
    postures = [joints[int(np.abs(times - time).argmin())][1] for time, *_ in estimates]
    return {
        "robot": robot.name,
        "time": [round(seconds, 3) for _, seconds, *_ in estimates],
        "lower": [lower for _, _, lower, _ in estimates],
        "upper": [upper for *_, upper in estimates],
        "q": [[round(posture[name], 4) for name in robot.joint_names] for posture in postures],
        "truth": None if truth is None else [float(value) for value in truth.payload],
    }


def com_box(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the box of the centre of mass in the frame of the last joint [m], from the bounds of ten parameters."""
    corners = np.array([[mc / m for mc in (lower[1:4], upper[1:4])] for m in (lower[0], upper[0])]).reshape(4, 3)
    return corners.min(axis=0), corners.max(axis=0)


def draw(data: dict, file: Path) -> None:
    """Draw three postures with the box of the centre of mass, and the bounds over time below."""
    time, lower, upper = (np.array(data[key]) for key in ("time", "lower", "upper"))
    robot = load_robot(data["robot"])
    shown = [0, int(np.searchsorted(time, 0.2 * time[-1])), len(time) - 1]
    figure = plt.figure(figsize=(10.0, 6.2), dpi=110)
    for column, index in enumerate(shown):
        axes = figure.add_axes((-0.02 + 0.33 * column, 0.33, 0.38, 0.66), projection="3d", computed_zorder=False)
        _draw_arm(axes, robot, np.array(data["q"][index]), com_box(lower[index], upper[index]))
        text = f"after {time[index]:.1f} s: {lower[index, 0]:.2f} to {upper[index, 0]:.2f} kg"
        figure.text(0.17 + 0.33 * column, 0.95, text, ha="center", weight="bold", fontsize=11)
    for column, (index, name, unit, scale) in enumerate(CURVES):
        axes = figure.add_axes((0.065 + 0.325 * column, 0.09, 0.265, 0.25))
        low, high = scale * lower[:, index], scale * upper[:, index]
        axes.fill_between(time, low, high, step="post", color=BAND, linewidth=0)
        axes.step(time, low, time, high, where="post", color=LINE, linewidth=1.2)
        if data["truth"] is not None:
            axes.axhline(scale * data["truth"][index], color=TRUTH, linewidth=1.2, dashes=(5, 2))
        for instant in time[shown]:
            axes.axvline(instant, color="#b0bec5", linewidth=0.8, zorder=0)
        axes.set_xlim(time[0], time[-1])
        axes.set_title(f"{name} [{unit}]", fontsize=10, loc="left")
        axes.set_xlabel("data [s]", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)
    plt.close(figure)


def _draw_arm(axes, robot, q: np.ndarray, box: tuple[np.ndarray, np.ndarray]) -> None:
    rotations, origins = BodyPoses(robot).compute(q)
    for sphere in robot.spheres:
        center = origins[sphere.body] + rotations[sphere.body] @ sphere.center
        u, v = np.mgrid[0 : 2 * np.pi : 13j, 0 : np.pi : 8j]
        ball = np.array([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)])
        x, y, z = center[:, None, None] + sphere.radius * ball
        axes.plot_surface(x, y, z, color=ARM, alpha=0.10, linewidth=0, shade=True, zorder=1)
    corners = np.array([origins[-1] + rotations[-1] @ corner for corner in product(*zip(*box, strict=True))])
    edges = [(a, b) for a in range(8) for b in range(a) if bin(a ^ b).count("1") == 1]
    axes.add_collection3d(Line3DCollection([corners[[a, b]] for a, b in edges], colors=TRUTH, linewidths=1.6, zorder=5))
    axes.set_xlim(-0.2, 0.7)
    axes.set_ylim(-0.45, 0.45)
    axes.set_zlim(0.0, 0.72)
    axes.set_box_aspect((1, 1, 0.8), zoom=1.6)
    axes.view_init(elev=16.0, azim=125.0)
    axes.set_axis_off()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        DATA.write_text(json.dumps(read(Path(sys.argv[1]))) + "\n")
    draw(json.loads(DATA.read_text()), IMAGE)
    sys.stdout.write(f"{IMAGE} written\n")
