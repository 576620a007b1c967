"""Identify a payload from a file: a table here; a folder of rosbag2, .mcap, .db3 or .bag is read in the same way."""

import tempfile
from pathlib import Path

import numpy as np
from simulate import dumbbell, simulate

import sysid_ros as sr

robot = sr.load_robot("kuka_lbr_iiwa7")
log = simulate(robot, dumbbell(robot=robot))
file = Path(tempfile.mkdtemp()) / "log.npz"
np.savez(file, **log, joints=list(robot.joint_names), units="t=s, q=rad, v=rad/s, tau=Nm")

result = sr.identify(file, robot, on_progress=lambda seconds, now: print(f"{seconds:.1f} s: {now.radius[0]:.2f} kg"))
print(f"usable: {result.is_usable}, guaranteed: {result.is_rigorous}, from {result.source}")
