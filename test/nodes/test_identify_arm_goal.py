"""One goal of ``~/identify_arm`` with everything around it faked: what is refused, recorded, found and answered."""

import dataclasses
import datetime
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from textbook import textbook_file

from sysid_msgs.action import Identify, IdentifyArm
from sysid_ros.adapters.identification import arm_goal
from sysid_ros.adapters.identification.arm_goal import ArmGoalRun, ArmMotions, load_of, split_at
from sysid_ros.adapters.identification.monitor import Records
from sysid_ros.adapters.identification.session import ArmGoalSettings, IdentificationParameters
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.estimation.calibration import CalibrationProgress, CalibrationShortOfData
from sysid_ros.core.excitation.creep_sweep import creep_speeds
from sysid_ros.core.model.calibration import load_calibration
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.procedure import (
    ExcitationRequest,
    IdentificationErrorCode,
    IdentificationFailed,
    KnownLoadPolicy,
    PayloadModel,
    Phase,
    Progress,
)
from sysid_ros.core.trajectories.families import FourierTrajectory
from sysid_ros.reports.torque_fit import predict_torque
from sysid_ros.ros.conversions.samples import Samples

pytestmark = pytest.mark.slow
Result = IdentifyArm.Result
START_NS, PERIOD_NS = 10**18, 2_000_000
BEGIN_NS = START_NS + 1_200_000_000
"""When the last motion begins."""
FAST = ArmGoalSettings(motion_time=4.0, validation_time=2.0, search_time=0.05, starts=1, criterion="condition_number")


def record(robot, payload, seconds=1.6, seed=0):
    """Batches of 20 samples of an arm with nominal parameters, with errors well within those allowed."""
    rng = np.random.default_rng(seed)
    sine, cosine = 0.15 * rng.standard_normal((2, robot.n, 3))
    order = np.arange(1, 4)
    sine -= sine.mean(axis=1, keepdims=True)
    cosine -= np.outer(cosine @ order, order) / (order @ order)
    motion = FourierTrajectory(robot.home, sine, cosine, 0.5, 2.0)
    times = PERIOD_NS * 1e-9 * np.arange(round(seconds / (PERIOD_NS * 1e-9)))

    def sample(at):
        return motion.sample(np.mod(at, 2.0))

    q, v, _ = sample(times)
    parts = (np.arange(8) + 0.5) / 8 - 1.0
    inner = sample(np.add.outer(times, parts * PERIOD_NS * 1e-9).ravel())
    tau = predict_torque(robot, payload, *inner).reshape(times.size, 8, robot.n).mean(axis=1)
    tau += 0.005 * rng.uniform(-1, 1, tau.shape)
    stamps, numbers = START_NS + PERIOD_NS * np.arange(times.size), np.arange(times.size)
    nothing, good = np.zeros_like(q), np.ones(times.size, dtype=bool)
    columns = (stamps, numbers, q, v, tau, nothing, nothing, nothing, nothing, good, good.astype(np.uint8))
    return [Samples(*(column[first : first + 20] for column in columns)) for first in range(0, times.size, 20)]


class FakeMonitor(SimpleNamespace):
    """What the node would have heard."""

    def begin(self, recorder):
        self.recorder = recorder or self.recorder
        if recorder is not None:
            recorder.write("driver", "std_msgs/msg/Empty", {}, START_NS)

    def end(self, final=None):
        if self.recorder is not None:
            self.recorder.close()


class Goal:
    """A goal run whose arm does not exist."""

    def __init__(self, robot, monkeypatch, folder=None, options=None, **fields):
        self.warnings, self.errors, self.given, self.told = [], [], [], []
        logger = SimpleNamespace(warning=self.warnings.append, error=self.errors.append)
        node = SimpleNamespace(get_logger=lambda: logger)
        self.monitor = FakeMonitor(
            records=Records(), estimate=None, estimate_stamp_ns=0, recorder=None, status=None, followed={},
            scene=Scene(ground_height=0.0), control_law=RobustSettings(),
        )  # fmt: skip
        suite = SimpleNamespace(node=node, robot=robot, monitor=self.monitor, clients=None, key=None)
        options = options or IdentificationParameters(
            arm=FAST, model=textbook_file(), results_root=tempfile.gettempdir()
        )
        fields = {"serial_number": "K7", "results_directory": "" if folder is None else str(folder)} | fields
        self.is_cancelled = False
        self.run_ = ArmGoalRun(suite, options, IdentifyArm.Goal(**fields), lambda: self.is_cancelled)
        monkeypatch.setattr(self.run_._arm, "set_model", lambda model, is_reset=False: self.given.append(model))
        self._robot, self._monkeypatch = robot, monkeypatch

    def run(self, payload=None, collect=None):
        def make_motions(ports, policy, settings, is_cancelled, on_progress):
            assert isinstance(policy, KnownLoadPolicy) and settings.strategy == "periodic"
            on_progress(Progress(Phase.WAITING, "waiting", 0.0, 0, 2, None))
            on_progress(Progress(Phase.MOVING, "moving", 0.5, 1, 2, None))
            self.monitor.records.samples += record(self._robot, np.zeros(10) if payload is None else payload)
            self.monitor.records.plans += [(START_NS, None), (BEGIN_NS, None)]
            if collect is not None:
                collect()

        build = lambda *words: SimpleNamespace(collect=lambda: make_motions(*words))  # noqa: E731
        self._monkeypatch.setattr(arm_goal, "build_procedure", build)
        self._monkeypatch.setattr(type(self.run_), "motion_time", 6.0)
        return self.run_.run(self.told.append)


def test_a_goal_calibrates_and_checks_on_the_last_motion(robot, monkeypatch, tmp_path):
    goal = Goal(robot, monkeypatch, tmp_path / "out")
    result = goal.run()
    assert result.error_code == 0, result.error_text
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"recording.mcap", "arm.yaml", "arm.urdf", "arm.html", f"{robot.name}.yaml"} <= names
    calibration = load_calibration(tmp_path / "out" / "arm.yaml")
    assert calibration.record.serial == "K7" and "empty hand" in calibration.record.recordings[0]
    days = datetime.date.fromisoformat(calibration.record.expires) - datetime.date.today()
    assert days == datetime.timedelta(days=180)
    assert calibration.box.contains(robot.theta_nominal)
    np.testing.assert_array_equal(result.lower, calibration.box.lower)
    assert len(result.parameter_names) == len(result.values) == 14 * robot.n
    assert 0.0 < result.relative_width < 1.0 and result.motion_time == 6.0
    # What is predicted was not used: only the samples before the last motion count.
    assert float(calibration.record.recordings[0].split(", ")[1].split(" s")[0]) <= 1.2
    assert len(result.residual_before) == len(result.residual_after) == robot.n
    assert max(result.residual_after) < 0.5
    assert load_robot(tmp_path / "out" / f"{robot.name}.yaml").calibration.record == calibration.record
    shares = [progress.progress for progress in goal.told]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(0.97)
    phases = [progress.phase for progress in goal.told]
    assert phases[0] is Phase.WAITING and phases[-1] is Phase.REPORTING and Phase.ESTIMATING in phases
    monkeypatch.setattr(type(goal.run_), "elapsed", 3.0)
    feedback = goal.run_.feedback(goal.told[-1])
    assert feedback.relative_width == result.relative_width and feedback.elapsed == 3.0
    np.testing.assert_array_equal(goal.given[-1].box.upper, robot.payload_prior.box.upper)  # the prior again


def test_the_record_says_what_is_known_of_the_arm(robot, monkeypatch, tmp_path):
    known = dataclasses.replace(FAST, firmware="2.5.0", temperature=-5.0, valid_days=0)
    for folder, settings, expected in (("known", known, ("2.5.0", -5.0)), ("not", FAST, (None, None))):
        options = IdentificationParameters(arm=settings, results_root=tempfile.gettempdir())
        result = Goal(robot, monkeypatch, tmp_path / folder, options).run()
        assert result.error_code == 0, result.error_text
        record = load_calibration(tmp_path / folder / "arm.yaml").record
        assert (record.firmware, record.temperature) == expected and (record.expires is None) == (settings is known)


def test_earlier_recordings_count_too(robot, monkeypatch, tmp_path, samples_file):
    result = Goal(robot, monkeypatch, tmp_path / "out", recordings=[f"{samples_file}=1.0+-0.01"]).run()
    assert result.error_code == 0, result.error_text
    earlier, own = load_calibration(tmp_path / "out" / "arm.yaml").record.recordings
    assert earlier.startswith("weight.npz: reference weight 1 kg +- 0.01 kg, 1.")
    assert own.startswith("out/recording.mcap: empty hand, 1.")


@pytest.fixture
def samples_file(robot, tmp_path):
    """A recording with a body of 1 kg."""
    load = load_of(robot, IdentifyArm.Goal(load_mass=1.0, load_mass_tolerance=0.01))
    blocks = [block for batch in record(robot, load.prior.nominal, 1.2, seed=5) for block in batch.blocks()[0]]
    joined = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in ("stamps", "q", "v", "tau")}
    path, units = tmp_path / "weight.npz", "t=ns, q=rad, v=rad/s, tau=Nm"
    values = {"t": joined.pop("stamps"), "joints": np.array(robot.joint_names), "units": units, **joined}
    np.savez(path, **values)
    return path


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"serial_number": " "}, "missing serial_number: expected the serial number of the arm"),
        ({"load_mass": 9.0}, "inside the payload prior 'held_object' of the arm, which has 0 to 2.5 kg"),
        ({"load_mass": -1.0}, "invalid mass of a known load -1.0 kg: expected more than 0"),
        ({"load_mass_tolerance": 0.1}, "load_mass [kg] 0.0: expected above 0"),
        ({"load_mass": 1.0, "load_com": [0.1]}, "load_com [m] [0.1]: expected three numbers"),
        ({"load_mass": 1.0, "load_com": [0.0, 0.0, 0.1], "load_com_tolerance": -1.0}, "load_com_tolerance [m]"),
        ({"motion_time": 1.0}, "motion_time [s] 1.0"),
        ({"validation_time": float("nan")}, "validation_time [s] nan"),
        ({"recordings": ["none.mcap"]}, "none.mcap: the file is missing"),
        ({"recordings": ["none.mcap=heavy"]}, "numbers in kg"),
    ],
)
def test_what_a_person_can_get_wrong_is_said_before_anything_moves(robot, monkeypatch, fields, words):
    goal = Goal(robot, monkeypatch, **fields)
    result = goal.run(collect=lambda: pytest.fail("it moves"))
    assert goal.warnings == [f"INVALID_GOAL: {result.error_text}"] and not goal.errors
    assert result.error_code == Identify.Result.INVALID_GOAL and words in result.error_text, result.error_text


def test_the_arm_is_the_one_that_its_driver_says(robot, monkeypatch):
    goal = Goal(robot, monkeypatch)
    goal.monitor.status = SimpleNamespace(serial_number="K8", reference_position=())
    result = goal.run(collect=lambda: pytest.fail("it moves"))
    assert result.error_code == Identify.Result.INVALID_GOAL
    assert "serial_number 'K7': expected K8, as the driver of the arm reports" in result.error_text


def test_an_arm_that_others_move_and_a_used_folder_are_refused(robot, monkeypatch, tmp_path):
    options = IdentificationParameters(arm=FAST, model=textbook_file(), results_root=tempfile.gettempdir())
    observing = dataclasses.replace(options, procedure=dataclasses.replace(options.procedure, strategy="observe"))
    result = Goal(robot, monkeypatch, options=observing).run()
    assert result.error_code == Identify.Result.INVALID_GOAL and "sysid calibrate arm" in result.error_text
    (tmp_path / "arm.yaml").write_text("")
    result = Goal(robot, monkeypatch, tmp_path).run()
    assert result.error_code == Identify.Result.INVALID_GOAL and "holds the arm.yaml of an earlier" in result.error_text


def test_recordings_of_two_arms_are_refused(robot, monkeypatch, tmp_path):
    first = Goal(robot, monkeypatch, tmp_path / "first", serial_number="K1")
    assert first.run().error_code == 0
    path = tmp_path / "first" / "recording.mcap"
    recorded = SimpleNamespace(
        batches=[block for batch in record(robot, np.zeros(10), 1.2) for block in batch.blocks()[0]], notices=(),
        caveats=(), velocity_error=None, payload_epochs=(0,), metadata={"serial": "K1", "robot": robot.name},
    )  # fmt: skip
    monkeypatch.setattr("sysid_ros.reports.recordings.files.read_recording", lambda *_: recorded)
    result = Goal(robot, monkeypatch, serial_number="K2", recordings=[str(path)]).run()
    assert "the serial number of its arm is K1; expected K2: one calibration is of one arm" in result.error_text
    recorded.metadata["robot"] = "kuka_lbr_med7"
    result = Goal(robot, monkeypatch, serial_number="K1", recordings=[str(path)]).run()
    assert "the robot in it is kuka_lbr_med7" in result.error_text
    recorded.metadata["robot"], recorded.payload_epochs = robot.name, (0, 1)
    result = Goal(robot, monkeypatch, serial_number="K1", recordings=[str(path)]).run()
    assert "what the hand holds is announced to have changed" in result.error_text
    recorded.payload_epochs, recorded.metadata["gripper"] = (0, 0), "closed"
    options = IdentificationParameters(
        arm=dataclasses.replace(FAST, gripper="open"), results_root=tempfile.gettempdir()
    )
    result = Goal(robot, monkeypatch, options=options, serial_number="K1", recordings=[str(path)]).run()
    assert "the state of the gripper in it is closed; expected open, as stated" in result.error_text
    assert Goal(robot, monkeypatch, serial_number="K1", recordings=[str(path)]).run().error_code == 0


def test_the_metadata_of_a_recording_name_arm_and_load(robot, monkeypatch, tmp_path):
    from mcap.reader import make_reader

    arm = dataclasses.replace(FAST, gripper="closed")
    options = IdentificationParameters(arm=arm, results_root=tempfile.gettempdir())
    Goal(robot, monkeypatch, tmp_path / "out", options=options).run()
    assert load_calibration(tmp_path / "out" / "arm.yaml").record.gripper == "closed"
    with (tmp_path / "out" / "recording.mcap").open("rb") as file:
        said = {}
        for one in make_reader(file).iter_metadata():
            said |= one.metadata
    assert (said["serial"], said["robot"], said["load"], said["gripper"]) == ("K7", robot.name, "empty hand", "closed")


def test_a_load_that_is_not_the_stated_one_is_inconsistent_and_the_recording_is_kept(robot, monkeypatch, tmp_path):
    heavy = load_of(robot, IdentifyArm.Goal(load_mass=2.0)).prior.nominal
    goal = Goal(robot, monkeypatch, tmp_path / "out")
    result = goal.run(heavy)
    assert result.error_code == Identify.Result.INCONSISTENT and "was the stated load attached" in result.error_text
    assert f"The recording is in {tmp_path / 'out' / 'recording.mcap'}" in result.error_text
    assert result.results_directory == str(tmp_path / "out") and not (tmp_path / "out" / "arm.yaml").exists()


def test_cancelled_in_the_computation_nothing_recorded_is_lost(robot, monkeypatch, tmp_path):
    goal = Goal(robot, monkeypatch, tmp_path / "out")

    def cancel():
        goal.is_cancelled = True

    result = goal.run(collect=cancel)
    assert result.error_code == Identify.Result.CANCELED and "The recording is in" in result.error_text
    assert (tmp_path / "out" / "recording.mcap").stat().st_size > 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, "it stopped"), "EXECUTION_FAILED"),
        (CalibrationShortOfData("recording.mcap", "sample faster"), "NO_WINDOWS"),
        (SysidError("something"), "INTERNAL"),
        (ValueError("a fault"), "INTERNAL"),
    ],
)
def test_whatever_fails_is_an_answer(robot, monkeypatch, error, code):
    def fail():
        raise error

    result = Goal(robot, monkeypatch).run(collect=fail)
    assert result.error_code == getattr(Identify.Result, code) and str(error) in result.error_text


def test_files_that_cannot_be_written_do_not_cost_the_numbers(robot, monkeypatch, tmp_path):
    def refuse(*_):
        raise SysidError("the disk is full")

    monkeypatch.setattr(arm_goal, "write_arm_result", refuse)
    result = Goal(robot, monkeypatch, tmp_path / "out").run()
    assert result.error_code == Identify.Result.RESULTS_NOT_WRITTEN and "the disk is full" in result.error_text
    assert len(result.lower) == 14 * robot.n


def test_widths_so_far_never_grow(robot, monkeypatch):
    goal = Goal(robot, monkeypatch)
    for width in (1.0, 0.8, 0.9, 0.7):
        goal.run_._take_calibration(CalibrationProgress(0.5, "bounds", width))
    assert goal.run_.feedback(Progress(Phase.ESTIMATING, "", 0.5, 0, 2, None)).relative_width == 0.7


def test_samples_are_split_at_the_last_motion(robot):
    batches = record(robot, np.zeros(10), 1.0)
    stamp = START_NS + 105 * PERIOD_NS
    before, after = split_at(batches, stamp)
    assert sum(len(block) for block in before) == 106 and sum(len(block) for block in after) == 394
    assert before[-1].stamps[-1] == stamp and after[0].stamps[0] == stamp + PERIOD_NS


class FakeSession(SimpleNamespace):
    """The suite as the search sees it."""

    def wait_until(self, condition, seconds=None):
        return condition()

    def describe_timeout(self, topic, what, profile, seconds=None):
        return f"no {what} on {topic}"


@pytest.fixture
def session(robot):
    monitor = SimpleNamespace(scene=Scene(ground_height=0.0), control_law=RobustSettings())
    return FakeSession(robot=robot, monitor=monitor, is_cancelled=lambda: False)


def request_of(robot, index, share=1.0):
    load = load_of(robot, IdentifyArm.Goal())
    model = dataclasses.replace(
        PayloadModel.prior(robot), box=KnownLoadPolicy(robot, load)._stated, nominal=np.zeros(10)
    )
    return ExcitationRequest(index, model, np.zeros((10, 10)), robot.home, 4.0, share)


def test_motions_can_be_proven_and_the_last_one_is_another(robot, session):
    from sysid_ros.core.certification.assumptions import Assumptions
    from sysid_ros.core.planning.planner import CertifiedPlanner

    told = []
    motions = ArmMotions(session, FAST, 3, lambda share, text: told.append((share, text)))
    first, number = motions.plan_excitation(request_of(robot, 0))
    last, _ = motions.plan_excitation(request_of(robot, 1))
    assert number > 1.0 and first.hash() != last.hash()
    assert 4.0 <= first.duration <= 4.0 * 1.8 and 2.0 <= last.duration <= 2.0 * 1.8
    shares = [share for share, _ in told]
    assert shares == sorted(shares) and shares[-1] == 1.0 and "predicted" in told[-1][1]
    model = request_of(robot, 0).model
    assumed = Assumptions(robot, (robot.theta_box, model.box), model.nominal, session.monitor.scene)
    for trajectory in (first, last):
        certificate = CertifiedPlanner(robot).certify(trajectory, assumed).certificate
        assert min(margin.value for margin in certificate.margins) >= 0.0


def test_sweeps_come_first_where_they_are_asked_for(robot, session):
    session.monitor.records = Records(samples=record(robot, np.zeros(10), 0.1))
    asked = dataclasses.replace(FAST, sweep_time=9.0)
    motions = ArmMotions(session, asked, 3, lambda *_: None)
    assert (FAST.sweeps, asked.sweeps) == (0, 3)
    for index, speed in enumerate(creep_speeds(robot, PERIOD_NS * 1e-9)):
        sweep, _ = motions.plan_excitation(request_of(robot, index))
        assert sweep.duration == pytest.approx(3.0)
        np.testing.assert_allclose(np.max(np.abs(sweep.velocity_extrema()), axis=0), speed, rtol=0.05)
    first, _ = motions.plan_excitation(request_of(robot, 3))
    last, _ = motions.plan_excitation(request_of(robot, 4))
    assert first.duration >= 4.0 > last.duration and first.hash() != last.hash()


def test_what_a_search_lacks_is_said(robot, session):
    session.monitor.scene = None
    motions = ArmMotions(session, FAST, 0, lambda *_: None)
    with pytest.raises(IdentificationFailed, match="no known scene on safe_planner/scene") as error:
        motions.plan_excitation(request_of(robot, 0))
    assert error.value.code is IdentificationErrorCode.PLAN_FAILED
    session.monitor.scene, session.is_cancelled = Scene(), lambda: True
    with pytest.raises(IdentificationFailed) as error:
        motions.plan_excitation(request_of(robot, 0))
    assert error.value.code is IdentificationErrorCode.CANCELED


def test_times_become_motions():
    assert (FAST.motions, FAST.each_duration) == (1, 4.0)
    longer = ArmGoalSettings(motion_time=40.0, motion_duration=15.0)
    assert longer.motions == 3 and longer.each_duration == pytest.approx(40.0 / 3)
