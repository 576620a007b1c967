"""The scene: its hash changes with every number, and it survives JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import Sphere

BOX = Obstacle("crate", [0.5, 0.1, 0.2], [0.1, 0.2, 0.3], pin.exp3(np.array([0.1, 0.2, 0.3])))
BALL = Sphere(7, np.array([0.0, 0.01, -0.1]), 0.05, "payload")
SCENE = Scene((BOX, replace(BOX, name="other", center=[0.0, 0.7, 0.2])), -0.1, (BALL,), 0.01)

CHANGES = {
    "an obstacle less": replace(SCENE, obstacles=(BOX,)),
    "other order": replace(SCENE, obstacles=SCENE.obstacles[::-1]),
    "moved": replace(SCENE, obstacles=(replace(BOX, center=BOX.center + [0, 0, 1e-15]), SCENE.obstacles[1])),
    "grown": replace(SCENE, obstacles=(replace(BOX, half_extents=[0.1, 0.2, 0.31]), SCENE.obstacles[1])),
    "turned": replace(SCENE, obstacles=(replace(BOX, rotation=np.eye(3)), SCENE.obstacles[1])),
    "other ground": replace(SCENE, ground_height=0.0),
    "no ground": replace(SCENE, ground_height=None),
    "payload of the prior": replace(SCENE, payload_spheres=None),
    "no payload": replace(SCENE, payload_spheres=()),
    "other payload": replace(SCENE, payload_spheres=(replace(BALL, radius=0.051),)),
    "other clearance": replace(SCENE, clearance=0.02),
}


def test_every_number_changes_the_hash():
    hashes = {name: scene.hash() for name, scene in CHANGES.items()}
    hashes["unchanged"] = SCENE.hash()
    assert len(set(hashes.values())) == len(hashes)
    assert replace(SCENE, obstacles=(replace(BOX, name="renamed"), SCENE.obstacles[1])).hash() == SCENE.hash()
    assert Scene().hash() != Scene(payload_spheres=()).hash()


@pytest.mark.parametrize("name", CHANGES)
def test_json_keeps_the_hash(name):
    scene = CHANGES[name]
    copy = Scene.from_dict(json.loads(json.dumps(scene.to_dict(), allow_nan=False)))
    assert copy.hash() == scene.hash() and copy.to_dict() == scene.to_dict()


def test_scenes_written_by_hand_may_leave_things_out():
    scene = Scene.from_dict({"obstacles": [{"name": "table", "center": [0.5, 0, 0], "half_extents": [0.2, 0.2, 0.1]}]})
    assert scene.obstacles[0].name == "table" and scene.ground_height is None and scene.payload_spheres is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"walls": []}, "walls"),
        ({"clearance": -0.1}, r"clearance \[m\]"),
        ({"clearance": float("nan")}, r"clearance \[m\]"),
        ({"ground_height": float("inf")}, r"ground_height \[m\]"),
        ({"obstacles": [{"center": [0, 0, 0]}]}, "obstacles with name, center"),
        ({"obstacles": [{"name": "a", "center": [0, 0, np.nan], "half_extents": [1, 1, 1]}]}, "center of obstacle 'a'"),
        (
            {"obstacles": [{"name": "a", "center": [0, 0, -1.1e4], "half_extents": [1, 1, 1]}]},
            r"center \[m\] of obstacle 'a' \[0.0, 0.0, -11000.0\]: expected above -10000, at most 10000",
        ),
        (
            {"obstacles": [{"name": "a", "center": [0, 0, 0], "half_extents": [1, 1e6, 1]}]},
            r"half_extents \[m\] of obstacle 'a' \[1.0, 1000000.0, 1.0\]: expected above 0, at most 10000",
        ),
        ({"payload_spheres": [[7, 0, 0, 0, 0.0]]}, "radius above 0"),
        ({"payload_spheres": [[7, 0, 0]]}, "payload_spheres"),
    ],
)
def test_what_cannot_be_is_refused(data, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        Scene.from_dict(data)
