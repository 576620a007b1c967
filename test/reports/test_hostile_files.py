"""Files that are made to do harm: every reader refuses YAML bombs, and results stay below their root."""

import time

import pytest

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange, SysidError
from sysid_ros.core.identifiability.tree_readers import read_rotors
from sysid_ros.core.model.calibration import load_calibration
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.reports.recordings.runs import read_plans
from sysid_ros.reports.writer import folder_below
from sysid_ros.ros.robot import load_scene
from sysid_ros.space.core.robot import load_free_flyer
from sysid_ros.space.report import read_known_robot

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
DEEP = "a: " + "[" * 100_000


@pytest.mark.parametrize("text", [ALIASES, DEEP], ids=["aliases", "depth"])
def test_every_reader_of_files_refuses_bombs_with_its_own_error(text, tmp_path, monkeypatch):
    file = tmp_path / "payloads.yaml"
    file.write_text(text)
    monkeypatch.setattr("sysid_ros.drivers.mujoco.simulation.config_directories", lambda: [tmp_path])
    robot = load_free_flyer("servicer")
    readers = (
        (lambda: load_robot(file), ModelError),
        (lambda: load_calibration(file), SysidError),
        (lambda: load_free_flyer(file), ModelError),
        (lambda: read_rotors(text, None), ModelError),
        (lambda: load_scene(str(file)), ParameterOutOfRange),
        (lambda: read_plans(file), ModelError),
        (lambda: read_known_robot(file, robot), SysidError),
        (lambda: load_payload(None, "dumbbell_4lb"), SysidError),
    )
    for read, error in readers:
        started = time.process_time()
        with pytest.raises(error, match="entries|within each other"):
            read()
        assert time.process_time() - started < 10.0


def test_results_stay_below_their_root(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    for wanted in ("first", "a/b", "a/../b", ".", str(root / "first"), str(root)):
        assert folder_below(root, wanted).is_relative_to(root)
    for wanted in ("..", "../outside", "a/../../outside", "/", str(outside), str(tmp_path), "link", "link/deep", "~",
                   f"{root}2"):  # fmt: skip
        with pytest.raises(ParameterOutOfRange, match="results_directory .* expected a folder below .*results_root"):
            folder_below(root, wanted)
    for wanted in ("a\0b", "a\nb", "\x1b[2J", "a\x7f", "a\u202eb", "\udcff"):  # terminals and logs would obey them
        with pytest.raises(ParameterOutOfRange, match="results_directory .* expected .* printable characters"):
            folder_below(root, wanted)
    assert folder_below(root, "Prüfung 1") == root / "Prüfung 1"
    (tmp_path / "link").symlink_to(root)
    assert folder_below(tmp_path / "link", "first") == root / "first"  # the root itself may be a link
    assert not list(outside.iterdir()) and not (root / "first").exists()


def test_the_users_home_may_be_the_root(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder_below("~/sysid_results", "first") == tmp_path / "sysid_results" / "first"
    assert folder_below("~/sysid_results", "~/sysid_results/first") == tmp_path / "sysid_results" / "first"
