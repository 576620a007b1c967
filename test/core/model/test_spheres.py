"""Collision spheres cover the shapes of the URDF, and published sphere models of the arms."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.collision.clearance import build_collision_model
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.model.loader import load_robot, load_robot_from_urdf
from sysid_ros.core.model.mechanics import joint_axis
from sysid_ros.core.model.spheres import cover_box, cover_cylinder, cover_links, links_without_spheres

FACTS = Path(__file__).parents[4] / "shared" / "facts" / "robots"
ROBOTS = ("kinova_gen3", "kinova_gen3_2f85", "kuka_lbr_iiwa7", "kuka_lbr_iiwa14", "kuka_lbr_med7", "kuka_lbr_med14")


def numbers(element, key):
    return np.array([float(word) for word in element.get(key).split()])


def surface(form, rng, count=400):
    """Points on the surface of a URDF shape, in its own frame."""
    if form.tag == "sphere":
        points = rng.normal(size=(count, 3))
        return float(form.get("radius")) * points / np.linalg.norm(points, axis=1)[:, None]
    if form.tag == "box":
        points = rng.uniform(-1.0, 1.0, (count, 3))
        return 0.5 * numbers(form, "size") * points / np.abs(points).max(axis=1)[:, None]
    radius, length, angle = float(form.get("radius")), float(form.get("length")), rng.uniform(0.0, 2 * np.pi, count)
    height = np.where(rng.uniform(size=count) < 0.5, rng.uniform(-0.5, 0.5, count), rng.choice([-0.5, 0.5], count))
    size = np.where(np.abs(height) == 0.5, radius * np.sqrt(rng.uniform(size=count)), radius)
    # The rims are the points hardest to cover.
    size[:50], height[:50] = radius, np.sign(height[:50]) * 0.5
    return np.stack([size * np.cos(angle), size * np.sin(angle), length * height], axis=1)


def outside(points, spheres):
    """How far points (k, 3) stick out of spheres [(center, radius)] at most [m]; negative where all are inside."""
    centers, radii = np.array([center for center, _ in spheres]), np.array([radius for _, radius in spheres])
    return (np.linalg.norm(points[:, None] - centers, axis=2) - radii).min(axis=1).max()


def surface_patches(form):
    """The surface of a URDF shape as patches: functions of (u, v) in [0, 1]^2 (k, 2) that give points (k, 3), and the
    largest speeds along u and v."""
    if form.tag == "box":
        half = 0.5 * numbers(form, "size")
        for axis in range(3):
            first, second = (k for k in range(3) if k != axis)
            for sign in (-1.0, 1.0):

                def face(uv, axis=axis, first=first, second=second, sign=sign):
                    points = np.empty((len(uv), 3))
                    points[:, axis] = sign * half[axis]
                    points[:, [first, second]] = (2.0 * uv - 1.0) * half[[first, second]]
                    return points

                yield face, 2.0 * half[[first, second]]
        return
    radius = float(form.get("radius"))

    def ring(u):
        return np.stack([np.cos(2 * np.pi * u), np.sin(2 * np.pi * u)], axis=1)

    turn = 2.0 * np.pi * radius
    if form.tag == "sphere":

        def ball(uv):
            height = np.pi * uv[:, 1:]
            return radius * np.hstack([np.sin(height) * ring(uv[:, 0]), np.cos(height)])

        yield ball, np.array([turn, np.pi * radius])
        return
    length = float(form.get("length"))
    yield lambda uv: np.hstack([radius * ring(uv[:, 0]), length * (uv[:, 1:] - 0.5)]), np.array([turn, length])
    for end in (-0.5, 0.5):

        def cap(uv, end=end):
            return np.hstack([radius * uv[:, 1:] * ring(uv[:, 0]), np.full((len(uv), 1), end * length)])

        yield cap, np.array([turn, radius])


def is_covered(patch, speeds, depth, finest=1e-6):
    """Whether all of a patch is inside the spheres, proven by dividing it: depth covers what is around."""
    middle, half = np.array([[0.5, 0.5]]), 0.5
    while len(middle):
        around = half * np.linalg.norm(speeds)
        if around < finest:
            return False
        depths = depth(patch(middle))
        if depths.min() < 0.0:
            return False
        middle = middle[depths < around]
        half *= 0.5
        middle = np.concatenate([middle + half * np.array(step) for step in ((-1, -1), (-1, 1), (1, -1), (1, 1))])
    return True


@pytest.mark.parametrize("name", ROBOTS)
def test_no_point_of_a_surface_is_outside_of_the_spheres(name):
    """Proven, not sampled: no gap is left between the spheres along a link."""
    robot, count, seen = load_robot(name), 0, 0
    for link in ET.fromstring(robot.urdf).findall("link"):
        for visual in link.findall("visual"):
            frame = robot.pin_model.frames[robot.pin_model.getFrameId(link.get("name"))]
            origin = visual.find("origin")
            rotation, offset = rotation_from_rpy(numbers(origin, "rpy")), numbers(origin, "xyz")
            centers = np.array([s.center for s in robot.spheres if s.body == frame.parentJoint])
            radii = np.array([s.radius for s in robot.spheres if s.body == frame.parentJoint])

            def depth(points, shrink=0.0, pose=(rotation, offset, frame.placement), balls=(centers, radii)):
                placed = (points @ pose[0].T + pose[1]) @ pose[2].rotation.T + pose[2].translation
                away = np.linalg.norm(placed[:, None] - balls[0], axis=2)
                return (balls[1] - shrink - away).max(axis=1)

            patches = list(surface_patches(visual.find("geometry")[0]))
            assert all(is_covered(patch, speeds, depth) for patch, speeds in patches), link.get("name")
            count += 1
            # Not vacuous: spheres 6 mm smaller leave something bare on most shapes.
            seen += not all(is_covered(*patch, lambda p, d=depth: d(p, 0.006)) for patch in patches)
    assert count >= 7 and seen >= 5


@pytest.mark.parametrize("name", ROBOTS)
def test_the_line_from_joint_to_joint_is_covered(name):
    """No gap between bodies either: a tube of 15 mm around the arm's skeleton lies in the spheres, at any posture."""
    robot, rng = load_robot(name), np.random.default_rng(4)
    model, data = robot.pin_model, robot.pin_model.createData()
    bodies = np.array([sphere.body for sphere in robot.spheres])
    radii = np.array([sphere.radius for sphere in robot.spheres])
    for _ in range(20):
        lower, upper = np.maximum(robot.limits.q_lower, -np.pi), np.minimum(robot.limits.q_upper, np.pi)
        pin.framesForwardKinematics(model, data, rng.uniform(lower, upper))
        centers = np.array([data.oMi[s.body].act(s.center) for s in robot.spheres])
        base, tool = (data.oMf[model.getFrameId(f)].translation for f in (robot.base_frame, robot.tool_frame))
        corners = [base, *(data.oMi[joint].translation for joint in range(1, 8)), tool]
        for body, (start, end) in enumerate(zip(corners, corners[1:], strict=False)):
            line = start + np.linspace(0.0, 1.0, 81)[:, None] * (end - start)
            step = 0.5 * np.linalg.norm(end - start) / 80
            near = np.abs(bodies - body) <= 1
            depth = (radii[near] - np.linalg.norm(line[:, None] - centers[near], axis=2)).max(axis=1)
            assert depth.min() - step >= 0.015, body


def keep_apart(robot, first, last, first_spheres, last_spheres):
    """Whether spheres of two bodies never touch, whatever the positions of the joints between them.

    Cells of joint positions are divided until what the spheres can move within a cell is less than their gap.
    """
    model = robot.pin_model
    joints = list(range(first + 1, last + 1))
    lower = np.maximum(robot.limits.q_lower, -np.pi)[first:last]
    upper = np.minimum(robot.limits.q_upper, np.pi)[first:last]
    inner, outer = np.array([s.center for s in first_spheres]), np.array([s.center for s in last_spheres])
    radii = np.add.outer([s.radius for s in last_spheres], [s.radius for s in first_spheres])
    # Largest distance of an outer centre to each joint's origin.
    reach = np.zeros((len(joints), len(outer)))
    far = np.linalg.norm(outer, axis=1)
    for row in reversed(range(len(joints))):
        reach[row] = far
        far = far + np.linalg.norm(model.jointPlacements[joints[row]].translation)
    middle, half = 0.5 * (lower + upper)[None], 0.5 * (upper - lower)[None]
    while len(middle):
        points = np.broadcast_to(outer, (len(middle), *outer.shape))
        for joint, angles in zip(reversed(joints), middle.T[::-1], strict=True):
            placement = model.jointPlacements[joint]
            turns = np.array([pin.exp3(angle * joint_axis(model, joint)) for angle in angles])
            points = np.einsum("ij,cjk,csk->csi", placement.rotation, turns, points) + placement.translation
        gaps = np.linalg.norm(points[:, :, None] - inner, axis=3) - radii
        moved = half @ reach  # (cells, outer spheres)
        bound = (gaps - moved[:, :, None]).min(axis=(1, 2))
        if gaps.min() <= 0.0:
            return False
        is_open = bound <= 0.0
        middle, half = middle[is_open], half[is_open]
        axis = np.argmax(half, axis=1)
        half = half * np.where(np.arange(half.shape[1]) == axis[:, None], 0.5, 1.0)
        shift = half * (np.arange(half.shape[1]) == axis[:, None])
        middle, half = np.concatenate([middle - shift, middle + shift]), np.concatenate([half, half])
    return True


@pytest.mark.parametrize("name", ROBOTS)
def test_links_that_are_not_compared_cannot_touch(name):
    """Links of the arm with one body between them keep apart by their position limits: proven, not sampled.

    (The safe planner leaves these pairs out, as do the links that never touch by their build.)
    """
    robot = load_robot(name)
    exempt = {frozenset(pair) for pair in robot.never_touch}
    compared = {frozenset(pair) for pair in build_collision_model(robot).pairs.tolist()}
    proven = 0
    for first in range(6):
        last = first + 2
        for outer in {s.link for s in robot.spheres if s.body == last}:
            pairs = [
                (i, j)
                for i, a in enumerate(robot.spheres)
                for j, b in enumerate(robot.spheres)
                if a.body == first and b.link == outer and b.body == last
                and frozenset((i, j)) not in compared and frozenset((a.link, b.link)) not in exempt
            ]  # fmt: skip
            if pairs:
                inner = [robot.spheres[i] for i in dict.fromkeys(i for i, _ in pairs)]
                own = [robot.spheres[j] for j in dict.fromkeys(j for _, j in pairs)]
                assert keep_apart(robot, first, last, inner, own), (first, outer)
                proven += 1
    assert proven >= 5
    # Not vacuous: neighbours do touch, and so would larger spheres.
    own = [[s for s in robot.spheres if s.body == body] for body in (2, 3, 4)]
    assert not keep_apart(robot, 2, 3, own[0], own[1])
    assert not keep_apart(robot, 2, 4, own[0], [replace(s, radius=s.radius + 0.1) for s in own[2]])


@pytest.mark.parametrize(("name", "file"), [("kinova_gen3_2f85", "kinova_gen3_7dof"), ("kuka_lbr_iiwa14",) * 2])
def test_published_sphere_models_stick_out_by_two_centimetres_at_most(name, file):
    path = FACTS / f"{file}.json"
    if not path.is_file():
        pytest.skip("the collected robot data are not on this machine")
    published = json.loads(path.read_text())["collision_spheres"]
    groups = published.get("spheres_by_link", {})
    children = {"joint_2": "half_arm_1_link", "joint_4": "forearm_link", "joint_6": "spherical_wrist_2_link"}
    groups |= {
        children[joint]: rows for joint, rows in published.get("spheres_by_joint", {}).items() if joint in children
    }
    robot, rng = load_robot(name), np.random.default_rng(1)
    model = robot.pin_model
    data = model.createData()
    # At zero the links a published group spans stand in one line.
    pin.framesForwardKinematics(model, data, np.zeros(7))
    spheres = [(data.oMi[s.body].act(s.center), s.radius) for s in robot.spheres]
    count = 0
    for link, rows in groups.items():
        if link == "lbr_link_0":
            continue
        for row in rows:
            points = rng.normal(size=(200, 3))
            points *= row["radius"] / np.linalg.norm(points, axis=1)[:, None]
            placement = data.oMf[model.getFrameId(link)]
            assert outside(np.array([placement.act(p + row["offset"]) for p in points]), spheres) < 0.0215
            count += 1
    assert count >= 13


@pytest.mark.parametrize("name", ROBOTS)
def test_bodies_two_apart_never_overlap_within_the_limits(name, collision_pairs):
    """So a plan may demand distance of all these pairs: the arm's own build does not violate it."""
    robot, rng = load_robot(name), np.random.default_rng(2)
    model, spheres = robot.pin_model, robot.spheres
    data = model.createData()
    pairs = np.array([(i, j) for i, j in collision_pairs(robot) if spheres[j].body - spheres[i].body == 2])
    radii = np.array([sphere.radius for sphere in spheres])
    for _ in range(300):
        lower = np.maximum(robot.limits.q_lower, -np.pi)
        pin.forwardKinematics(model, data, rng.uniform(lower, np.minimum(robot.limits.q_upper, np.pi)))
        centers = np.array([data.oMi[sphere.body].act(sphere.center) for sphere in spheres])
        gaps = np.linalg.norm(centers[pairs[:, 0]] - centers[pairs[:, 1]], axis=1) - radii[pairs].sum(axis=1)
        assert gaps.min() > 0.0


@pytest.mark.parametrize(("radius", "length"), [(0.05, 0.2), (0.1, 0.01), (0.02, 1.0)])
def test_cover_cylinder(radius, length):
    rows = cover_cylinder(radius, length)
    form = ET.Element("cylinder", radius=str(radius), length=str(length))
    points = surface(form, np.random.default_rng(3), 4000)
    assert outside(points, [(row[:3], row[3]) for row in rows]) <= 1e-12
    assert max(row[3] for row in rows) <= 1.25 * radius + 1e-12


@pytest.mark.parametrize("size", [(0.1, 0.1, 0.1), (0.02, 0.1, 0.4), (0.3, 0.3, 0.01)])
def test_cover_box(size):
    form = ET.Element("box", size=" ".join(map(str, size)))
    rows = cover_box(np.array(size))
    assert outside(surface(form, np.random.default_rng(4), 4000), [(row[:3], row[3]) for row in rows]) <= 1e-12


def test_shapes_of_any_urdf_give_spheres():
    robot = load_robot("kuka_lbr_med7")
    derived = load_robot_from_urdf(robot.urdf)
    assert {s.link for s in derived.spheres} == {s.link for s in robot.spheres}
    mesh = robot.urdf.replace("<sphere ", '<mesh filename="package://nowhere/a.stl" ').replace("<cylinder ", "<mesh ")
    assert cover_links(mesh) == {}
    assert any("no collision spheres: lbr_link_1" in sentence for sentence in load_robot_from_urdf(mesh).assumptions)


@pytest.mark.parametrize("name", ROBOTS)
def test_no_link_of_our_robots_is_without_spheres(name):
    assert links_without_spheres(load_robot(name)) == ()


def test_links_without_spheres_are_found():
    robot = load_robot("kinova_gen3_2f85")
    dropped = ("base_link", "forearm_link", "robotiq_85_base_link")
    bare = links_without_spheres(replace(robot, spheres=tuple(s for s in robot.spheres if s.link not in dropped)))
    # The fingers have shapes, which were inside the spheres of the gripper; the knuckles have none.
    fingers = {f"robotiq_85_{side}_finger{part}_link" for side in ("left", "right") for part in ("", "_tip")}
    assert bare[0] == "forearm_link" and bare[-1] == "base_link"
    assert set(bare) == {*dropped, *fingers}
    # A mesh may be anywhere, so spheres of the same body say nothing of it.
    tool = """<link name="camera"><visual><geometry><mesh filename="package://nowhere/a.stl"/></geometry></visual></link>
    <joint name="mount" type="fixed"><parent link="end_effector_link"/><child link="camera"/></joint></robot>"""
    urdf = robot.urdf.replace("</robot>", tool)
    assert links_without_spheres(load_robot("kinova_gen3_2f85", urdf)) == ("camera",)


def test_a_body_that_only_has_mass_needs_spheres_too():
    robot = load_robot("kuka_lbr_med7")
    left = replace(robot, urdf="", spheres=tuple(s for s in robot.spheres if s.body in (0, 3, 7)))
    assert links_without_spheres(left) == tuple(f"lbr_link_{body}" for body in (1, 2, 4, 5, 6))


def test_collision_shapes_come_before_what_is_shown():
    text = """<robot name="r"><link name="a"><visual><geometry><sphere radius="1"/></geometry></visual>
    <collision><origin xyz="0 0 2"/><geometry><sphere radius="0.5"/></geometry></collision></link></robot>"""
    assert cover_links(text) == {"a": [[0.0, 0.0, 2.0, 0.5]]}


@pytest.mark.parametrize("row", [[0, 0, 0], [0, 0, 0, 0.0], [0, 0, "x", 0.1], "wide"])
def test_bad_spheres_are_refused(row):
    urdf = load_robot("kuka_lbr_med7").urdf
    with pytest.raises(ParameterOutOfRange, match="spheres.lbr_link_3"):
        load_robot_from_urdf(urdf, settings={"spheres": {"lbr_link_3": [row]}})
