"""What planner and driver know of the scene, and when they do not."""

from types import SimpleNamespace

import pytest
from visualization_msgs.msg import Marker, MarkerArray

from sysid_ros.adapters.safe_planner.scene import SceneStore
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.admission import SCENE_TIMEOUT, SOURCE_MEMORY, SceneGuard
from sysid_ros.drivers.loop_types import LoopRefusal

NAN = float("nan")


def marker(robot, number, x=1.0, action=Marker.ADD):
    one = Marker(ns="box", id=number, type=Marker.CUBE, action=action)
    one.header.frame_id = robot.base_frame
    one.pose.position.x = x
    one.scale.x = one.scale.y = one.scale.z = 0.1
    return one


@pytest.fixture
def store(robot):
    return SceneStore(robot, Scene())


def update(store, *markers, now=0.0):
    return store.update(MarkerArray(markers=list(markers)), now)


def places(store):
    return {one.name: one.center[0] for one in store.latest.obstacles}


def test_a_good_message_does_not_make_up_for_a_bad_one_about_another_obstacle(store, robot):
    assert update(store, marker(robot, 1), marker(robot, 2)) and store.fault is None
    assert update(store, marker(robot, 1, NAN), marker(robot, 2, 2.0)) and "not finite" in store.fault
    with pytest.raises(ParameterOutOfRange, match="not known"):
        _ = store.scene
    update(store, marker(robot, 3))
    assert "not finite" in store.fault and places(store) == {"box 1": 1.0, "box 2": 1.0, "box 3": 1.0}
    update(store, marker(robot, 1, 3.0))
    assert "not finite" in store.fault  # the second was in the bad message, too
    assert update(store, marker(robot, 2, action=Marker.DELETE)) and store.fault is None
    assert places(store) == {"box 1": 3.0, "box 3": 1.0}
    update(store, marker(robot, 4, NAN))
    assert update(store, marker(robot, 0, action=Marker.DELETEALL)) and store.fault is None
    assert not store.scene.obstacles
    assert not update(store)


def test_frames_with_the_prefix_of_one_arm_are_its_own(robot):
    store = SceneStore(robot, Scene(), tf_prefix="left/")
    other = marker(robot, 1)
    update(store, other)
    assert f"not 'left/{robot.base_frame}'" in store.fault
    other.header.frame_id = f"left/{robot.base_frame}"
    assert update(store, other) and store.fault is None


def test_a_fixed_scene_that_cannot_be_used_is_refused_at_once(robot):
    with pytest.raises(ParameterOutOfRange, match="ground"):
        SceneStore(robot, Scene(ground_height=0.6))  # above the base of the arm


def test_a_timeout_of_the_obstacles_is_a_fault_where_they_are_asked_for(robot):
    store = SceneStore(robot, Scene(), timeout=1.0)
    assert "no obstacles have been received yet" in store.fault
    assert update(store, now=100.0) and store.fault is None
    assert not store.check_timeout(100.9)
    assert store.check_timeout(101.1) and "more than the 1 s of obstacles_timeout" in store.fault
    update(store, marker(robot, 1, NAN), now=102.0)
    assert "not finite" in store.fault and "obstacles_timeout" in store.fault
    assert update(store, marker(robot, 1), now=103.0) and store.fault is None


def test_two_sources_are_none_until_one_has_timed_out():
    guard = SceneGuard(Scene())
    assert guard.find_conflict("a", 0.0) is None and guard.update(Scene()) is None and guard.hash
    assert guard.find_conflict("a", 100.0) is None
    assert "2 safe planners publish a scene (a, b)" in guard.find_conflict("b", 100.0 + 0.9 * SOURCE_MEMORY)
    assert "scene is no longer known" in guard.invalidate("two") and guard.hash is None and guard.fault == "two"
    later = 100.0 + 2.0 * SOURCE_MEMORY
    assert guard.find_conflict("b", later) is None and guard.update(Scene()) is None
    assert guard.hash and guard.fault is None
    assert "one without a name" in guard.find_conflict("", later)


def test_a_scene_that_nobody_says_again_admits_nothing():
    guard, certificate = SceneGuard(Scene()), SimpleNamespace(scene_hash=Scene().hash())
    guard.find_conflict("a", 100.0)
    guard.update(Scene())
    guard.admit(certificate, 100.0 + SCENE_TIMEOUT)
    with pytest.raises(LoopRefusal, match=r"the last scene came 5\.1 s ago \(allowed 5 s\); does the safe planner run"):
        guard.admit(certificate, 100.1 + SCENE_TIMEOUT)
    guard.find_conflict("a", 106.0)
    guard.admit(certificate, 106.0)
