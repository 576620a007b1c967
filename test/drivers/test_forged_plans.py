"""What an attacker may send: every forged plan is refused, with a code and words that say why.

Most are signed with the key of the suite: what the driver checks and proves itself must not rest on who signed.
"""

import re
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from forged_certificates import FIELDS, NAN, NOW
from textbook import textbook_file

from sysid_ros.core.certification.assumptions import Assumptions, box_hash
from sysid_ros.core.certification.authentication import Authentication, AuthenticationKey
from sysid_ros.core.certification.stop_model import VerifierSettings
from sysid_ros.core.certification.verify import Beginning, make_certificate, verify
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.admission import SceneGuard, admit_start, admit_takeover
from sysid_ros.drivers.gate import Authenticator, Conditions, OfferedPlan, PlanGate
from sysid_ros.drivers.loop_types import LoopModel, LoopRefusal, RefusalCode
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.proof import ProofServer
from sysid_ros.ros.conversions.plans import authentication_from_message, certified_from_message, certified_to_message

STEADY = 50.0
KEY, OTHER_KEY = AuthenticationKey(b"k" * 32), AuthenticationKey(b"x" * 32)
SCENE = Scene(ground_height=-0.05)
REST = np.zeros(7)
(MALFORMED, NO_CERTIFICATE, NOT_AUTHENTIC, REPLAYED, EXPIRED, OUT_OF_RANGE, OTHER, OTHER_START, NOT_PROVEN) = (
    RefusalCode(number) for number in range(2, 11)
)


@dataclass(frozen=True)
class Honest:
    """A plan as the safe planner makes it, and one that takes over from it."""

    assumptions: Assumptions
    path: BezierTrajectory
    certificate: object
    next_path: BezierTrajectory
    next_certificate: object


def certify(assumptions, path, beginning=None, history=None):
    bound = assumptions.bound(path, history)
    beginning = replace(beginning or Beginning(rest_before=bound.settling_time), issued_at=NOW - 1.0)
    found = verify(assumptions, path, bound, VerifierSettings())
    return make_certificate(assumptions, path, bound, found, beginning), bound


@pytest.fixture(scope="module")
def model(robot):
    """What the driver uses: a payload that was weighed."""
    prior, held = robot.payload_prior.box, load_payload(robot, "dumbbell_4lb")
    lower, upper = (np.clip(held + sign * 0.02 * prior.radius, prior.lower, prior.upper) for sign in (-1.0, 1.0))
    return LoopModel.of_payload(robot, Box(lower, upper), held)


@pytest.fixture(scope="module")
def honest(robot, model):
    assumptions = Assumptions(robot, (model.theta_box, model.payload_box), model.payload, SCENE)
    path = BezierTrajectory(robot.home, REST, REST, robot.home + 0.1, 3.0)
    certificate, bound = certify(assumptions, path)
    q, v, a = path.evaluate(1.5)
    next_path = BezierTrajectory(q, v, a, robot.home - 0.1, 3.0)
    following, _ = certify(assumptions, next_path, Beginning(certificate.plan_id, 1.5), bound.until(1.5))
    return Honest(assumptions, path, certificate, next_path, following)


@pytest.fixture(scope="module")
def prover(robot):
    """The server of the driver's proof process, in this one."""
    server = ProofServer(channel=None)
    server.load(textbook_file())
    return server


class Driver:
    """What a plan passes on its way to the arm, which is held at home, or follows the honest plan."""

    def __init__(self, robot, prover, honest, follows=False, required=SCENE):
        self.robot, self.honest, self.follows = robot, honest, follows
        boxes, nominal = honest.assumptions.boxes, honest.assumptions.nominal
        self.model = LoopModel(robot.theta_nominal, boxes[0], nominal, boxes[1])
        self.scene = SceneGuard(required)
        self.scene.find_conflict("planner", STEADY)
        self.scene.update(SCENE)
        self.authenticator = Authenticator(KEY)
        self.prover = prover
        self.steady = STEADY

    def receive(self, message):
        """Take a message to where the arm would move; return the certificate."""
        trajectory, certificate = certified_from_message(message, self.robot.joint_names)
        if certificate is None:
            raise LoopRefusal("trajectory", "it has no certificate", NO_CERTIFICATE)
        plan = OfferedPlan(trajectory, certificate, authentication_from_message(message))
        gate = PlanGate(self.robot, self.authenticator, self.scene, self.prover)
        law = self.honest.assumptions.control_law.law
        gate.admit(plan, Conditions(self.model, law, NOW, self.steady))
        if self.follows:
            before = self.honest.path, self.honest.certificate.plan_id
            admit_takeover(self.robot, trajectory, certificate, *before)
        else:
            admit_start(self.robot, trajectory, certificate, self.robot.home, 10.0)
        return certificate

    def code(self, message):
        """Return the code of the refusal as the node gives it, None for none, and the words."""
        try:
            self.receive(message)
        except LoopRefusal as refusal:
            return refusal.code, str(refusal)
        except (SysidError, ValueError) as error:
            return MALFORMED, str(error)
        return None, ""


@pytest.fixture
def driver(robot, prover, honest):
    return Driver(robot, prover, honest)


def message_of(robot, path, certificate, given):
    message = certified_to_message(path, certificate, robot.joint_names)
    message.session, message.authentication = given.session, list(given.code)
    return message


def signed(driver, path, certificate, key=KEY, session=None):
    session = driver.authenticator.session if session is None else session
    return message_of(driver.robot, path, certificate, key.authenticate(certificate, session))


def test_honest_plans_pass(driver, honest, robot, prover):
    assert driver.code(signed(driver, honest.path, honest.certificate)) == (None, "")
    following = Driver(robot, prover, honest, follows=True)
    assert following.code(signed(following, honest.next_path, honest.next_certificate)) == (None, "")


@pytest.mark.parametrize("name", FIELDS)
def test_forged_certificates_are_refused_whoever_signed_them(driver, honest, name):
    change, wanted, words = FIELDS[name]
    forged = replace(honest.certificate, **change(honest.certificate))
    code, text = driver.code(signed(driver, honest.path, forged))
    assert code in (wanted if isinstance(wanted, tuple) else (wanted,)), (code, text)
    assert re.search(words, text), text


def shortened(name, count):
    def change(message):
        setattr(message.certificate, name, list(getattr(message.certificate, name))[:count])

    return change


def cut(message):
    message.certificate.margins = list(message.certificate.margins)[1:]


def hundred_limits(message):
    message.certificate.margin_limits = ["imagination", *list(message.certificate.margin_limits)[1:]]


def coefficient(value):
    def change(message):
        data = list(message.trajectory.coefficients[0].data)
        data[0] = value
        message.trajectory.coefficients[0].data = data

    return change


def field(path, value):
    def change(message):
        part = message
        *names, last = path.split(".")
        for one in names:
            part = getattr(part, one)
        setattr(part, last, value)

    return change


MESSAGES = {
    "no certificate": (field("certificate.plan_id", ""), NO_CERTIFICATE),
    "a plan_id of something else": (field("certificate.plan_id", "0" * 64), MALFORMED),
    "a velocity bound of three numbers": (shortened("velocity_bound", 3), MALFORMED),
    "no velocity bound": (shortened("velocity_bound", 0), MALFORMED),
    "a torque bound of three numbers": (shortened("torque_bound", 3), MALFORMED),
    "no torque bound": (shortened("torque_bound", 0), MALFORMED),
    "no tracking bound": (shortened("tracking_bound", 0), MALFORMED),
    "no joint names": (shortened("joint_names", 0), MALFORMED),
    "a nominal payload of three numbers": (shortened("nominal_payload", 3), MALFORMED),
    "fewer margins than limits": (cut, MALFORMED),
    "a limit that does not exist": (hundred_limits, MALFORMED),
    "expires before it is issued": (field("certificate.expires_at", 0.0), MALFORMED),
    "expires at no time": (field("certificate.expires_at", NAN), MALFORMED),
    "issued at no time": (field("certificate.issued_at", NAN), MALFORMED),
    "a path that is not a number": (coefficient(NAN), MALFORMED),
    "a path beside its hash": (coefficient(0.3), MALFORMED),
    "a duration beside its hash": (field("trajectory.duration", 1e-3), MALFORMED),
    "a path of a kind that does not exist": (field("trajectory.kind", "teleport"), MALFORMED),
    "joints of another robot": (field("trajectory.joint_names", ["a", "b"]), MALFORMED),
    "margins larger, beside the code": (
        lambda message: field("certificate.margins", [2.0 * one for one in message.certificate.margins])(message),
        NOT_AUTHENTIC,
    ),
    "longer valid, beside the code": (field("certificate.expires_at", NOW + 1000.0), NOT_AUTHENTIC),
    "other claims, beside the code": (field("certificate.claims", "all is well"), NOT_AUTHENTIC),
    "no code": (field("authentication", []), NOT_AUTHENTIC),
    "a code of zeros": (field("authentication", [0] * 32), NOT_AUTHENTIC),
    "half a code": (lambda message: field("authentication", list(message.authentication)[:16])(message), NOT_AUTHENTIC),
    "a session beside the code": (field("session", "0" * 32), NOT_AUTHENTIC),
}
"""By name: what is done to a good message after it was signed, and the code."""


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_that_were_changed_on_their_way_are_refused(driver, honest, name):
    change, wanted = MESSAGES[name]
    message = signed(driver, honest.path, honest.certificate)
    change(message)
    code, text = driver.code(message)
    assert code == wanted and text, (code, text)


def test_certificates_of_others_and_of_other_sessions_are_refused(driver, honest):
    path, certificate = honest.path, honest.certificate
    cases = {
        "another key": (signed(driver, path, certificate, OTHER_KEY), NOT_AUTHENTIC),
        "the code of another certificate": (
            message_of(driver.robot, path, certificate, KEY.authenticate(honest.next_certificate, "s")),
            NOT_AUTHENTIC,
        ),
        "an earlier session": (signed(driver, path, certificate, session="earlier"), REPLAYED),
        "no session": (signed(driver, path, certificate, session=""), REPLAYED),
    }
    for name, (message, wanted) in cases.items():
        code, text = driver.code(message)
        assert code == wanted, (name, code, text)
    driver.authenticator.note_used(certificate, NOW)
    code, text = driver.code(signed(driver, path, certificate))
    assert code == REPLAYED and "has been used" in text


def test_without_a_key_nothing_moves_unless_the_configuration_says_so(driver, honest):
    message = message_of(driver.robot, honest.path, honest.certificate, Authentication())
    driver.authenticator = Authenticator(None)
    code, text = driver.code(message)
    assert code == NOT_AUTHENTIC and "allow_unauthenticated" in text
    driver.authenticator = Authenticator(None, allows_unauthenticated=True)
    assert driver.code(message) == (None, "")
    forged = replace(honest.certificate, torque_fraction=5.0)  # what the driver checks itself, it still checks
    assert driver.code(message_of(driver.robot, honest.path, forged, Authentication()))[0] == OUT_OF_RANGE
    driver.authenticator.note_used(honest.certificate, NOW)
    assert driver.code(message)[0] == REPLAYED


def claim(honest, path, **changes):
    """A certificate that claims of a path what holds of the honest one."""
    return replace(honest.certificate, path_hash=path.hash(), **changes)


def test_paths_that_break_limits_are_refused_whatever_their_certificates_say(driver, honest, robot):
    home, low = robot.home, np.array(robot.home)
    low[1] += 1.2  # the shoulder down to the ground
    beyond = np.array(home)
    beyond[1] = robot.limits.q_upper[1] + 0.1
    moving = np.zeros(7)
    moving[0] = 0.2
    away = home + 0.02
    cases = {
        "to the ground": (BezierTrajectory(home, REST, REST, low, 8.0), NOT_PROVEN),
        "beyond a limit": (BezierTrajectory(home, REST, REST, beyond, 8.0), NOT_PROVEN),
        "too fast": (BezierTrajectory(home, REST, REST, home + 0.6, 0.4), NOT_PROVEN),
        "for a day": (BezierTrajectory(home, REST, REST, home + 0.1, 86400.0), OUT_OF_RANGE),
        "from a moving start": (BezierTrajectory(home, moving, REST, home, 3.0), OTHER_START),
        "from elsewhere": (BezierTrajectory(away, REST, REST, home, 3.0), (OTHER_START, NOT_PROVEN)),
    }
    for name, (path, wanted) in cases.items():
        code, text = driver.code(signed(driver, path, claim(honest, path)))
        assert code in (wanted if isinstance(wanted, tuple) else (wanted,)), (name, code, text)


def test_takeovers_that_do_not_fit_are_refused(robot, prover, honest):
    driver = Driver(robot, prover, honest, follows=True)
    start = Driver(robot, prover, honest)
    start.receive(signed(start, honest.path, honest.certificate))  # proven, as its successor needs
    path, certificate = honest.next_path, honest.next_certificate
    q, v, a = honest.path.evaluate(1.5)
    jump = BezierTrajectory(q + 0.01, v, a, robot.home, 3.0)
    cases = {
        "off the grid of the proof": (path, replace(certificate, takeover_time=1.5051)),
        "before the beginning": (path, replace(certificate, takeover_time=-0.5)),
        "at no time": (path, replace(certificate, takeover_time=NAN)),
        "after the end": (path, replace(certificate, takeover_time=9.0)),
        "at another time": (path, replace(certificate, takeover_time=1.2)),
        "with a jump": (jump, replace(certificate, path_hash=jump.hash())),
        "as if from rest": (path, replace(certificate, predecessor=None, takeover_time=0.0, rest_before=2.0)),
    }
    for name, (one, forged) in cases.items():
        code, text = driver.code(signed(driver, one, forged))
        assert code in (NOT_PROVEN, OTHER_START, OUT_OF_RANGE), (name, code, text)


def test_a_scene_that_is_not_known_or_not_said_again_admits_nothing(driver, honest):
    message = signed(driver, honest.path, honest.certificate)
    driver.steady = STEADY + 6.0
    assert driver.code(message)[0] == OTHER
    driver.steady = STEADY
    driver.scene.invalidate("two planners publish one")
    assert driver.code(message)[0] == OTHER
    box = Obstacle("box", np.array([0.6, 0.0, 0.3]), np.full(3, 0.05))
    driver.scene.update(replace(SCENE, obstacles=(box,)))
    code, text = driver.code(message)
    assert code == OTHER and "plan it again" in text


def test_the_proof_is_about_the_boxes_of_the_driver(driver, honest, robot):
    """A certificate for a lighter payload than the driver knows, whose hash says so, is not for this driver."""
    prior = robot.payload_prior.box
    light = Box(prior.lower, np.minimum(prior.upper, prior.lower + 0.1 * (prior.upper - prior.lower)))
    forged = replace(honest.certificate, box_hash=box_hash(robot.theta_box, light))
    assert driver.code(signed(driver, honest.path, forged))[0] == OTHER


def test_a_process_that_cannot_prove_refuses(driver, honest):
    def fail(*_):
        raise LoopRefusal("trajectory", "the driver's own proof fails: no", NOT_PROVEN)

    driver.prover = SimpleNamespace(prove=fail)
    assert driver.code(signed(driver, honest.path, honest.certificate))[0] == NOT_PROVEN
