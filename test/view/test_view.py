"""The arm in a browser: what is in the scene, what a replay says at a time, and what people see."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import open_page
from doubles import estimate_around_nominal

from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.network import free_port
from sysid_ros.view import scene as scene_module
from sysid_ros.view.address import LOOPBACK
from sysid_ros.view.replay import FollowedPlan, Replay, Story
from sysid_ros.view.scene import ArmView, com_box

pytestmark = pytest.mark.processes


def make_estimate(robot):
    return estimate_around_nominal(robot, number_of_windows=12, data_seconds=4.0)


@pytest.fixture
def view(robot):
    pytest.importorskip("viser", reason="the view needs viser: pip install 'sysid_ros[view]'")
    view = ArmView(robot, free_port())
    yield view
    view.close()


def make_story(robot):
    seconds = np.linspace(0.0, 4.0, 401)
    q = robot.home + 0.3 * np.sin(seconds)[:, None]
    final = make_estimate(robot)
    times = np.array([1.0, 2.0, 3.0, 4.0])
    box = robot.payload_prior.box
    bounds = [
        np.stack([final.values - share * box.width, final.values, final.values + share * box.width])
        for share in (0.4, 0.2, 0.1, 0.05)
    ]
    table = Obstacle("table", [0.6, 0.0, 0.1], [0.2, 0.3, 0.1], np.eye(3))
    return Story(seconds, q, times, np.array(bounds), final, scene=Scene(obstacles=(table,)))


def test_without_viser_it_is_said_what_to_install(robot, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(SysidError, match=r"pip install 'sysid_ros\[view\]'"):
        ArmView(robot)


def test_a_port_that_is_none_is_refused(robot):
    with pytest.raises(ParameterOutOfRange, match="port of the view 80: expected 1024 to 65535"):
        ArmView(robot, 80)


def test_nobody_else_can_look(view):
    """The server listens on loopback alone: no other address of this machine answers."""
    assert view.url.startswith("http://127.0.0.1:") and view.server.get_host() == LOOPBACK
    port = view.server.get_port()
    listening = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        address, hexadecimal = local.split(":")
        if state == "0A" and int(hexadecimal, 16) == port:
            listening.add(address)
    assert listening == {"0100007F"}
    six = [line.split()[1] for line in Path("/proc/net/tcp6").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert not any(int(local.split(":")[1], 16) == port for local in six)


def test_bodies_are_where_forward_kinematics_puts_them(view, robot):
    q = robot.home + 0.4
    view.show_posture(q)
    rotations, origins = BodyPoses(robot).compute(q)
    for body, rotation, origin in zip(view._bodies, rotations, origins, strict=True):
        np.testing.assert_allclose(body.position, origin)
        w, x, y, z = body.wxyz
        np.testing.assert_allclose(1 - 2 * (y * y + z * z), rotation[0, 0], atol=1e-9)
        np.testing.assert_allclose(2 * (x * y + z * w), rotation[1, 0], atol=1e-9)


def test_the_box_of_the_centre_of_mass_is_that_of_the_bounds(view, robot):
    estimate = make_estimate(robot)
    view.show_estimate(estimate, 1.0)
    box = com_box(robot, estimate)
    (drawn,) = [part for part in view._parts["payload"] if part.name.endswith("/com")]
    np.testing.assert_allclose(drawn.position, 0.5 * (box.lower + box.upper))
    np.testing.assert_allclose(drawn.dimensions, box.width)
    truth = robot.payload_prior.nominal
    assert box.contains(truth[1:4] / truth[0])
    assert "kg" in view._words.content and "12 windows" in view._words.content


def test_what_is_not_known_is_not_drawn(view, robot):
    view.show_estimate(make_estimate(robot), 1.0)
    assert view._parts["payload"]
    light = dataclasses.replace(make_estimate(robot), lower=make_estimate(robot).lower - 5.0 * np.eye(10)[0])
    view.show_estimate(light, 2.0)
    assert com_box(robot, light) is not None, "where the mass may be zero, the prior alone bounds the centre of mass"
    alarm = Alarm(AlarmCode.WINDOW_INCONSISTENT, "joint_2 is inconsistent")
    view.show_estimate(dataclasses.replace(make_estimate(robot), is_consistent=False, alarm=alarm), 3.0)
    assert not view._parts["payload"] and "joint_2 is inconsistent" in view._words.content


def test_an_unknown_scene_is_red_and_says_why(view):
    table = Obstacle("table", [0.6, 0.0, 0.1], [0.2, 0.3, 0.1], np.eye(3))
    view.show_scene(Scene(obstacles=(table,)), "nobody has said so for 5 s")
    parts = {part.name: part for part in view._parts["environment"]}
    assert tuple(parts["/environment/0"].color) == (230, 26, 26)
    assert "nobody has said so" in parts["/environment/fault"].text
    view.show_scene(Scene())
    assert {part.name for part in view._parts["environment"]} == {"/environment/ground"}


def test_many_estimates_are_thinned_out(view, robot, monkeypatch):
    monkeypatch.setattr(scene_module, "_KEPT", 50)
    estimate = make_estimate(robot)
    for k in range(120):
        view.show_estimate(estimate, 0.1 * k)
    assert len(view._times) == len(view._estimates) <= 50 and view._times[-1] == pytest.approx(11.9)
    assert view._times == sorted(view._times) and view._times[0] == 0.0
    view.show_estimate(estimate, 0.0)  # a new run
    assert view._times == [0.0]


def test_a_story_knows_at_a_time_what_was_known_by_then(robot):
    story = make_story(robot)
    assert story.estimate(0.5) is None
    early, late = story.estimate(1.5), story.estimate(9.0)
    np.testing.assert_array_equal(early.upper, story.bounds[0, 2])
    assert late is story.final and early.data_seconds == 1.0
    np.testing.assert_allclose(story.posture(2.005), robot.home + 0.3 * np.sin(2.005), atol=1e-5)


def test_a_replay_shows_the_plan_that_was_followed_and_the_one_that_waited(view, robot):
    """Two plans, the second of which takes over; before, between and after them the arm rests."""
    story = make_story(robot)
    rest = np.zeros(robot.n)
    path = [BezierTrajectory(robot.home + offset, rest, rest, robot.home, 2.0) for offset in (0.1, 0.2)]
    plans = [FollowedPlan(path[0], 0.2, 0.5, 1.5), FollowedPlan(path[1], 1.0, 1.5, 3.0)]
    story = dataclasses.replace(story, plans=plans)
    seen = {at: story.plans_at(at) for at in (0.1, 0.3, 0.7, 1.2, 1.5, 2.9, 3.5)}
    assert seen == {
        0.1: (None, None), 0.3: (None, 0), 0.7: (0, None), 1.2: (0, 1), 1.5: (1, None), 2.9: (1, None),
        3.5: (None, None),
    }  # fmt: skip
    replay = Replay(view, robot, story)
    for at, names, words in (
        (0.3, ["/plans/1"], "at rest; plan 1 waits"),
        (1.2, ["/plans/0", "/plans/1"], "follows plan 1 of 2; plan 2 waits"),
        (2.0, ["/plans/0"], "follows plan 2 of 2"),
        (3.5, [], "at rest"),
    ):
        replay.show(at)
        assert [part.name for part in view._parts["plans"]] == names and replay._words.content == words
    replay.show(2.0)
    (drawn,) = view._parts["plans"]
    np.testing.assert_allclose(drawn.points[0, 0], BodyPoses(robot).tool_path(path[1].sample(np.zeros(1))[0])[0])


def test_a_replay_in_a_browser(view, robot, tmp_path):
    """A person moves the slider: the arm and the words follow; what is seen is not empty."""
    replay = Replay(view, robot, make_story(robot))
    replay._play.value = False
    with open_page(view.url, tmp_path, 640, 400) as page:
        page.wait_for("document.body.innerText.includes('Nothing is known of the payload yet.')")
        assert view.is_watched
        replay._slider.value = 3.5
        page.wait_for("document.body.innerText.includes('centre of mass within')")
        assert page.evaluate("document.querySelectorAll('canvas').length") >= 1
        np.testing.assert_allclose(view._bodies[1].position, BodyPoses(robot).compute(robot.home)[1][1])
        outside = page.evaluate(
            "performance.getEntriesByType('resource').map(e => e.name).filter(u => !u.startsWith(location.origin))"
        )
        assert not [url for url in outside if url.startswith("http")], "the page loads nothing from anywhere else"
        page.screenshot(tmp_path / "view.png")
    from matplotlib.image import imread

    picture = imread(tmp_path / "view.png")[..., :3]
    assert picture.shape[:2] == (400, 640)
    middle = picture[50:350, 50:350]
    assert len(np.unique(np.round(middle.reshape(-1, 3), 1), axis=0)) > 10, "the picture is empty"
