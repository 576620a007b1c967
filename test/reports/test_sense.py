"""What is noticed on reading: units, angles, repeats and garbage; right recordings pass without a word."""

import dataclasses

import numpy as np
import pinocchio as pin
import pytest
from recording_files import write_csv, write_npz
from test_bags import HEADER, STATE, TIME, states, write_bag
from true_arm import true_model

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.options import InvalidRecording, ReadOptions

ARMS = ("franka_fr3", "ur5e", "xarm7", "kuka_lbr_med14")
AS_IT_IS = {"": 1.0}


def move(robot, rate=100.0, seconds=5.0, seed=0, payload=None, gravity=1.0, amplitude=0.5):
    """Samples of an arm at a corner of its box, with a payload at a corner of its prior."""
    rng = np.random.default_rng(seed)
    theta = sample_parameters(robot, rng, corner=True)
    held = sample_payload(robot.payload_prior, rng, corner=True) if payload is None else payload
    model = true_model(robot, theta, held)
    friction, data = robot.friction(theta), model.createData()
    stamps = np.rint(np.arange(0.0, seconds, 1.0 / rate) * 1e9).astype(np.int64)
    times = 1e-9 * stamps
    w, phase = 2.0 * np.pi * rng.uniform(0.15, 0.4, robot.n), rng.uniform(0.0, 6.0, robot.n)
    size = amplitude * rng.uniform(0.4, 1.0, robot.n)
    angle = np.outer(times, w) + phase
    q, v, a = robot.home + size * np.sin(angle), size * w * np.cos(angle), -size * w**2 * np.sin(angle)
    weight = np.array([pin.computeGeneralizedGravity(robot.pin_model, robot.pin_model.createData(), row) for row in q])
    tau = np.array([pin.rnea(model, data, *rows) for rows in zip(q, v, a, strict=True)])
    tau += (gravity - 1.0) * weight + friction[:, 0] * np.sign(v) + friction[:, 1] * v + friction[:, 2] * a
    tau += friction[:, 3] + 0.01 * rng.uniform(-1.0, 1.0, tau.shape)
    return SampleBlock(stamps, np.arange(len(stamps)), q, v, tau)


def with_tau(samples, tau):
    return dataclasses.replace(samples, tau=tau)


def plain(path, robot, samples, **options):
    """A table that says nothing but names, read with options."""
    file = write_csv(path / "log.csv", robot, samples, header=[])
    return read_recording(file, robot, ReadOptions(units={"t": "ns"}, **options))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("arm", ARMS)
def test_right_efforts_pass_without_a_word(arm, seed, tmp_path):
    robot = load_robot(arm)
    samples = move(robot, seed=seed, payload=np.zeros(10) if seed == 2 else None)
    recording = plain(tmp_path, robot, samples)
    assert len(recording.notices) == 1 and "units are not stated" in recording.notices[0] and not recording.caveats
    np.testing.assert_allclose(recording.samples.tau, samples.tau)
    turned = plain(tmp_path, robot, with_tau(samples, -samples.tau))
    np.testing.assert_allclose(turned.samples.tau, samples.tau)


@pytest.mark.parametrize("arm", ARMS)
def test_currents_are_noticed_and_can_be_scaled(arm, tmp_path):
    """Every joint with a constant of its own; at another rate than the other tests."""
    robot = load_robot(arm)
    constants = np.linspace(9.0, 14.0, robot.n)
    samples = move(robot, rate=40.0, seed=5)
    amps = with_tau(samples, samples.tau / constants)
    with pytest.raises(InvalidRecording, match=r"is 0\.\d+ of what gravity needs \(.*currents\? percent\?.*-scale"):
        plain(tmp_path, robot, amps)
    known = dict(zip(robot.joint_names, constants, strict=True))
    scaled = plain(tmp_path, robot, amps, effort_scale=known)
    np.testing.assert_allclose(scaled.samples.tau, samples.tau, rtol=1e-9)
    assert not scaled.caveats and any("scaled as stated" in text for text in scaled.notices)
    taken = plain(tmp_path, robot, amps, effort_scale=AS_IT_IS, effort_sign=1.0)
    assert "of what gravity needs" in taken.caveats[0] and "taken as stated" in taken.caveats[0]
    with pytest.raises(ParameterOutOfRange, match="elbow"):
        plain(tmp_path, robot, amps, effort_scale={"elbow": 2.0})


@pytest.mark.parametrize("factor", [0.3, 2.5, 1000.0])
def test_a_common_factor_is_named_with_its_size(factor, tmp_path):
    robot = load_robot("franka_fr3")
    samples = move(robot, seed=1)
    with pytest.raises(InvalidRecording, match="of what gravity needs") as caught:
        plain(tmp_path, robot, with_tau(samples, factor * samples.tau))
    assert float(caught.value.value.split()[0]) == pytest.approx(factor, rel=0.4)
    assert ("mNm" in str(caught.value)) == (factor == 1000.0)


def test_masses_that_are_assumed_may_explain_the_size_of_efforts(tmp_path):
    robot = load_robot("xarm7")
    samples, lower = move(robot), robot.theta_box.lower.copy()
    half = with_tau(samples, 0.5 * samples.tau)
    with pytest.raises(InvalidRecording, match="the size of the efforts"):
        plain(tmp_path, robot, half)
    lower[: 10 * robot.n : 10] *= 0.3
    wide = dataclasses.replace(robot, theta_box=Box(lower, robot.theta_box.upper))
    assert "unless assumed masses of the arm explain it" in plain(tmp_path, wide, half).notices[-1]


def test_percent_of_the_torque_limits_differ_by_joint(tmp_path):
    robot = load_robot("xarm7")
    samples = move(robot, seed=3)
    with pytest.raises(InvalidRecording, match=r"of what gravity needs .joint2 .*: currents. percent.* joint2="):
        plain(tmp_path, robot, with_tau(samples, 100.0 * samples.tau / robot.limits.tau_max))


@pytest.mark.parametrize("arm", ("franka_fr3", "kinova_gen3", "ur10e"))
def test_gravity_that_was_taken_off_is_named(arm, tmp_path):
    robot = load_robot(arm)
    samples = move(robot, seed=2, gravity=0.0, payload=0.3 * robot.payload_prior.nominal)
    with pytest.raises(InvalidRecording, match="gravity seems to be taken off already .*expected measured torques"):
        plain(tmp_path, robot, samples)
    caveats = plain(tmp_path, robot, samples, effort_scale=AS_IT_IS).caveats
    assert "taken off already" in caveats[0]


def test_a_payload_heavier_than_its_prior_is_no_unit(tmp_path):
    robot = load_robot("ur5e")
    heavy = 1.8 * robot.payload_prior.nominal / robot.payload_prior.nominal[0] * robot.payload_prior.box.upper[0]
    samples = move(robot, payload=heavy)
    recording = plain(tmp_path, robot, samples)
    np.testing.assert_allclose(recording.samples.tau, samples.tau)
    assert "is it heavier (weigh it), or are they in another unit" in recording.notices[-1] and not recording.caveats


def test_efforts_in_another_unit_and_against_the_joints_are_turned_with_a_word(tmp_path):
    robot = load_robot("franka_fr3")
    samples = move(robot, seed=1)
    wrong = with_tau(samples, -2.5 * samples.tau)
    with pytest.raises(InvalidRecording, match="of what gravity needs"):
        plain(tmp_path, robot, wrong)
    taken = plain(tmp_path, robot, wrong, effort_scale=AS_IT_IS)
    assert any("against the joint direction" in text for text in taken.notices) and taken.caveats
    np.testing.assert_allclose(taken.samples.tau, 2.5 * samples.tau)
    scaled = plain(tmp_path, robot, wrong, effort_scale={"": 0.4})
    np.testing.assert_allclose(scaled.samples.tau, samples.tau)


@pytest.mark.parametrize("unit", ["rad", "deg"])
def test_angles_modulo_a_turn_are_unfolded(unit, tmp_path):
    robot = load_robot("kinova_gen3")
    samples = move(robot, rate=200.0, seed=4)
    samples = dataclasses.replace(samples, q=samples.q - samples.q[0] + np.where(np.arange(7) % 2, 0.1, 0.05))
    size = np.degrees(1.0) if unit == "deg" else 1.0
    folded = dataclasses.replace(samples, q=size * np.mod(samples.q, 2.0 * np.pi))
    file = write_csv(tmp_path / "log.csv", robot, folded, header=[])
    recording = read_recording(
        file, robot, ReadOptions(units={"t": "ns", "q": unit}, effort_scale=AS_IT_IS, effort_sign=1.0)
    )
    np.testing.assert_allclose(np.mod(recording.samples.q - samples.q + 1.0, 2.0 * np.pi), 1.0, atol=1e-9)
    assert np.abs(np.diff(recording.samples.q, axis=0)).max() < 0.1
    assert np.all(np.abs(recording.samples.q[:, 1]) <= robot.limits.q_upper[1])
    assert any("were modulo one turn" in text for text in recording.notices)


def test_joints_of_two_turns_are_unfolded_where_they_jump(tmp_path):
    robot = load_robot("ur10e")
    samples = move(robot, rate=100.0, seed=6)
    shifted = samples.q - samples.q[0] + 0.05 * np.arange(-2, 4)
    folded = dataclasses.replace(samples, q=np.mod(shifted, 2.0 * np.pi))
    recording = plain(tmp_path, robot, folded, effort_sign=1.0, effort_scale=AS_IT_IS)
    assert np.abs(np.diff(recording.samples.q, axis=0)).max() < 0.1
    np.testing.assert_allclose(np.mod(recording.samples.q - shifted + 1.0, 2.0 * np.pi), 1.0, atol=1e-9)


def test_angles_outside_the_limits_or_in_another_unit_are_not_folded(tmp_path):
    robot = load_robot("franka_fr3")
    samples = move(robot)
    outside = dataclasses.replace(samples, q=samples.q + np.where(np.arange(7) == 3, -3.5, 0.0))
    for wrong in (outside, dataclasses.replace(samples, q=np.degrees(samples.q) % 360.0)):
        with pytest.raises(InvalidRecording, match="the position of .*expected"):
            plain(tmp_path, robot, wrong)
    arm = load_robot("ur5e")  # joints of two turns
    far = dataclasses.replace(move(arm), q=move(arm).q + np.where(np.arange(6) == 5, 4.0, 0.0))
    assert not any("modulo" in text for text in plain(tmp_path, arm, far).notices)


def test_a_slow_source_that_is_published_fast_is_thinned(tmp_path):
    robot = load_robot("ur5e")
    samples = move(robot, rate=500.0, seconds=3.0)
    held = np.arange(len(samples)) // 4 * 4
    repeated = SampleBlock(samples.stamps, samples.sequence, samples.q[held], samples.v[held], samples.tau[held])
    recording = plain(tmp_path, robot, repeated)
    np.testing.assert_array_equal(recording.samples.stamps, samples.stamps[::4])
    assert any("a source of 125 Hz published at 500 Hz" in text for text in recording.notices)
    assert "up to 2 ms late" in recording.caveats[0]


def test_an_arm_at_rest_may_repeat_itself(tmp_path):
    robot = load_robot("ur5e")
    one = move(robot).slice(0, 1)
    rest = [np.repeat(rows, 300, axis=0) for rows in (one.q, 0.0 * one.v, one.tau)]
    stamps = 2_000_000 * np.arange(300)
    recording = plain(tmp_path, robot, SampleBlock(stamps, np.arange(300), *rest), effort_sign=1.0)
    assert len(recording.samples) == 300 and not recording.caveats


def test_numbers_of_uninitialised_memory_are_missing(tmp_path):
    robot = load_robot("ur5e")
    samples = move(robot)
    tau = samples.tau.copy()
    tau[[3, 70], 2], tau[100, 1] = 4.7e-310, 1e300
    recording = plain(tmp_path, robot, with_tau(samples, tau))
    assert len(recording.samples) == len(samples) - 3
    assert any("numbers that no sensor sends" in text and "in 3 rows" in text for text in recording.notices)
    tau[:, 4] = 6.9e-310
    with pytest.raises(InvalidRecording, match="the effort of wrist_2_joint is missing, or zero throughout"):
        plain(tmp_path, robot, with_tau(samples, tau))


def test_velocities_are_compared_with_positions(tmp_path):
    robot = load_robot("ur5e")
    samples = move(robot, rate=200.0, amplitude=0.1)
    calm = move(robot, rate=200.0, amplitude=0.05)  # so slow that degrees per second are possible speeds
    assert np.all(np.degrees(np.abs(calm.v)) < 3.0 * robot.limits.v_max)
    with pytest.raises(InvalidRecording, match="the velocity of .* times the change of its positions; .*'v=deg/s'"):
        plain(tmp_path, robot, dataclasses.replace(calm, v=np.degrees(calm.v)))
    with pytest.raises(InvalidRecording, match="the velocity of .* times the change of its positions; .*'q=deg'"):
        plain(tmp_path, robot, dataclasses.replace(calm, q=np.degrees(calm.q - robot.home)))
    filtered = dataclasses.replace(samples, v=0.1 * samples.v)
    recording = plain(tmp_path, robot, filtered)
    assert any("0.1 times the change of its positions; all velocities" in text for text in recording.notices)
    np.testing.assert_allclose(recording.samples.v[50:-50], samples.v[50:-50], atol=0.02)


def test_joints_may_change_their_order_in_a_topic(robot, short, tmp_path):
    """As a driver does that was restarted while its topic was recorded; each message has its names."""
    rng = np.random.default_rng(0)

    def edit(k, message):
        order = list(rng.permutation(len(message.name))) if k > 120 else list(range(len(message.name)))
        rows = (np.asarray(rows)[order] for rows in (message.position, message.velocity, message.effort))
        return STATE(HEADER(TIME(message.header.stamp.sec, message.header.stamp.nanosec), ""),
                     [message.name[place] for place in order], *rows)  # fmt: skip

    recording = read_recording(write_bag(tmp_path / "bag", short, [states(robot)], edit=edit), robot)
    for name in ("q", "v", "tau"):
        np.testing.assert_array_equal(getattr(recording.samples, name), getattr(short, name))
    told = [text for text in recording.notices if "another order" in text]
    assert told == ["/joint_states: joints come in another order from message 122 on; found by name"], "told once"


def test_tables_of_a_spreadsheet(tmp_path):
    """The line for Excel, decimal commas, a time of any name, and joints that are counted."""
    robot = load_robot("ur5e")
    samples = move(robot, rate=50.0)
    words = [f"{word}{k}" for word in ("q", "qd", "tau") for k in range(1, 7)]

    def table(time, *first):
        lines = [*first, ";".join([time, *words])]
        for k in range(len(samples)):
            row = np.concatenate([[samples.seconds[k]], samples.q[k], samples.v[k], samples.tau[k]])
            lines.append(";".join(f"{number:.9f}".replace(".", ",") for number in row))
        (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
        return tmp_path / "log.csv"

    recording = read_recording(table("Zeit", "sep=;"), robot)
    np.testing.assert_allclose(recording.samples.q, samples.q, atol=1e-8)
    text = " ".join(recording.notices)
    assert "the time is taken to be column 'Zeit'" in text
    assert "joints 1 to 6 are taken to be shoulder_pan_joint, shoulder_lift_joint, " in text
    words.append("Bemerkung")
    words.append("Zyklus")
    with pytest.raises(InvalidRecording, match="column 't' is missing; expected .*--map NAME=t"):
        read_recording(table("Zeit"), robot)


def test_a_time_may_be_mapped(robot, short, tmp_path):
    names = ["Zeit [ns]", "Index", *(f"{kind}_{joint}" for kind in ("q", "v", "tau") for joint in robot.joint_names)]
    lines = [",".join(names)]
    for k, stamp in enumerate(short.stamps):
        numbers = np.concatenate([short.q[k], short.v[k], short.tau[k]])
        lines.append(",".join([str(stamp), str(k), *(repr(float(number)) for number in numbers)]))
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    recording = read_recording(tmp_path / "log.csv", robot, ReadOptions(joint_names={"Zeit": "t"}))
    np.testing.assert_array_equal(recording.samples.stamps, short.stamps)
    assert write_npz(tmp_path / "again.npz", robot, short).is_file()
