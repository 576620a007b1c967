"""What planner and driver know of the surroundings, and when they do not."""

from dataclasses import replace
from functools import partial

import pytest
from visualization_msgs.msg import Marker, MarkerArray

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.scene_guard import SOURCE_MEMORY, SceneGuard
from sysid_ros.nodes.safe_planner_scene import SceneBook

NAN = float("nan")


def marker(robot, number, x=1.0, action=Marker.ADD):
    one = Marker(ns="box", id=number, type=Marker.CUBE, action=action)
    one.header.frame_id = robot.base_frame
    one.pose.position.x = x
    one.scale.x = one.scale.y = one.scale.z = 0.1
    return one


@pytest.fixture
def book(robot):
    return SceneBook(robot, Scene())


def hear(book, *markers, now=0.0):
    return book.hear(MarkerArray(markers=list(markers)), now)


def places(book):
    return {one.name: one.center[0] for one in book.best.obstacles}


def test_a_good_message_does_not_make_up_for_a_bad_one_about_another_obstacle(book, robot):
    assert hear(book, marker(robot, 1), marker(robot, 2)) and book.fault == ""
    assert hear(book, marker(robot, 1, NAN), marker(robot, 2, 2.0)) and "not finite" in book.fault
    with pytest.raises(ParameterOutOfRange, match="not known"):
        _ = book.scene
    hear(book, marker(robot, 3))
    assert "not finite" in book.fault and places(book) == {"box 1": 1.0, "box 2": 1.0, "box 3": 1.0}
    hear(book, marker(robot, 1, 3.0))
    assert "not finite" in book.fault  # the second was in the bad message, too
    assert hear(book, marker(robot, 2, action=Marker.DELETE)) and book.fault == ""
    assert places(book) == {"box 1": 3.0, "box 3": 1.0}
    hear(book, marker(robot, 4, NAN))
    assert hear(book, marker(robot, 0, action=Marker.DELETEALL)) and book.fault == "" and not book.scene.obstacles
    assert not hear(book)


def test_parameters_and_obstacles_do_not_excuse_each_other(book, robot):
    hear(book, marker(robot, 1, NAN))
    book.fix(Scene)
    assert "not finite" in book.fault
    book.fix(lambda: replace(Scene(), ground_height=0.6))  # above the base of the arm
    hear(book, marker(robot, 1))
    assert "ground" in book.fault and "not finite" not in book.fault
    book.fix(partial(Scene, ground_height=-0.5))
    assert book.fault == "" and book.scene.ground_height == -0.5


def test_silence_of_the_obstacles_is_a_fault_where_they_are_asked_for(robot):
    book = SceneBook(robot, Scene(), timeout=1.0)
    assert "no obstacles have been heard yet" in book.fault
    assert hear(book, now=100.0) and book.fault == ""
    assert not book.listen(100.9)
    assert book.listen(101.1) and "more than the 1 s of obstacles_timeout" in book.fault
    hear(book, marker(robot, 1, NAN), now=102.0)
    assert "not finite" in book.fault and "obstacles_timeout" in book.fault
    assert hear(book, marker(robot, 1), now=103.0) and book.fault == ""


def test_two_sources_are_none_until_one_has_been_silent():
    guard = SceneGuard()
    assert guard.contradict("a", 0.0) == "" and guard.see(Scene()) == "" and guard.hash
    assert guard.contradict("a", 100.0) == ""
    assert "2 safe planners say what is around the arm (a, b)" in guard.contradict("b", 100.0 + 0.9 * SOURCE_MEMORY)
    assert "surroundings are no longer known" in guard.lose("two") and guard.hash == "" and guard.fault == "two"
    later = 100.0 + 2.0 * SOURCE_MEMORY
    assert guard.contradict("b", later) == "" and guard.see(Scene()) == "" and guard.hash and guard.fault == ""
    assert "one without a name" in guard.contradict("", later)
