"""The example of the library tutorial, run as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.regressors.torque import TorqueRegressor

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial" / "library.md"


def test_the_library_example_runs_as_printed(tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(example.splitlines()) <= 22
    write_samples(tmp_path / "samples.npz")
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "library.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:10]] == "m mcx mcy mcz Ixx Ixy Iyy Ixz Iyz Izz".split()
    assert (tmp_path / "results" / "report.html").is_file()
    value, lower, upper = (float(text) for text in re.findall(r"-?\d+\.\d+", lines[0]))
    assert lower <= value <= upper and lower <= 2.0 <= upper and upper - lower < 1.5


def write_samples(path: Path) -> None:
    """Two seconds of a smooth motion with a payload of 2 kg, without sensor errors."""
    robot = load_robot("kinova_gen3_2f85")
    t = 1e-3 * np.arange(2000)[:, None]
    rate = np.linspace(1.5, 3.0, robot.n)
    q = robot.home + 0.3 * (1.0 - np.cos(rate * t)) / rate
    v, a = 0.3 * np.sin(rate * t), 0.3 * rate * np.cos(rate * t)
    theta = robot.theta_nominal.copy()
    nominal = robot.payload_prior.nominal
    theta[robot.inertial_slice(robot.n)] += nominal * (2.0 / nominal[0])
    regressor = TorqueRegressor(robot)
    tau = regressor.evaluate(q, v, a) @ theta[regressor.columns.indices]
    # The effort sensor of this robot reports the mean torque since the sample before.
    tau[1:] = 0.5 * (tau[1:] + tau[:-1])
    np.savez(path, t=np.arange(2000) * 1_000_000, q=q, v=v, tau=tau)
