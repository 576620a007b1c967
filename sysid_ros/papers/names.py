"""Names of the papers' experiments, on command lines and in tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EXPERIMENTS = ("a", "b", "c")
DUMBBELLS = ("dumbbell_4lb", "dumbbell_5lb", "dumbbell_6lb", "dumbbell_7lb", "dumbbell_8lb")
PUBLISHED, HARDWARE = "published", "hardware"
PROFILES = (PUBLISHED, HARDWARE)
"""Arms and control laws: from the authors' settings, or elastic joints with gains that the driver allows."""
OURS, CERTIFIED, RANDOM, FOURIER = "ours", "certified", "random", "fourier"
WAYS = (OURS, CERTIFIED, RANDOM, FOURIER)
"""Motions for identification: certified exciting plans, certified random ones, random ones of the paper's range, or a
Fourier series that ignores obstacles and torques."""


@dataclass(frozen=True)
class Method:
    """A method of Table II.

    Attributes:
        controller: Its control law: robust, adaptive, composite, pid or online.
        model: Source of its payload model: identified, nothing (no payload), or prior.
        way: Motion before the task, of :data:`WAYS`; None without one.
        controls: Its model is found by its own control law, while the arm makes those motions.
        paper: Experiments of Table III in the paper, a, b, c.
    """

    controller: str
    model: str
    way: str | None
    controls: bool
    paper: tuple[str, str, str]


METHODS: Mapping[str, Method] = {
    "ours": Method("robust", "identified", OURS, False, ("success", "success", "success")),
    "wrong": Method("robust", "nothing", None, False, ("fail at 8lb", "fail at 8lb", "collide")),
    "conservative": Method("robust", "prior", None, False, ("fail at 8lb", "fail at 8lb", "collide")),
    "random": Method("robust", "identified", RANDOM, False, ("success", "fail at 8lb", "collide")),
    "adap-1": Method("adaptive", "prior", None, False, ("success", "fail at 8lb", "collide")),
    "adap-1-excit": Method("adaptive", "prior", OURS, True, ("success", "success", "collide")),
    "adap-2": Method("composite", "prior", None, False, ("fail at 8lb", "fail at 4lb", "collide")),
    "adap-2-excit": Method("composite", "prior", OURS, True, ("fail at 8lb", "fail at 4lb", "collide")),
    "grav-pid": Method("pid", "nothing", None, False, ("success", "fail at 6lb", "collide")),
    "grav-pid-ours": Method("pid", "identified", OURS, False, ("success", "success", "collide")),
    "grav-pid-excit": Method("pid", "identified", FOURIER, False, ("fail at 4lb", "fail at 4lb", "collide")),
    "online-model": Method("online", "prior", OURS, True, ("-", "-", "-")),
}
"""The eleven methods of the paper, and SVA's online model."""
PENDULUM, LEG, ARM, COST = "pendulum", "leg", "arm", "regressor"
SVA_EXPERIMENTS = (PENDULUM, LEG, ARM, COST)
SVA_ROBOTS = {PENDULUM: "sva_double_pendulum", LEG: "sva_leg", ARM: "sva_arm"}

EXCITE_ROBOT = "kuka_lbr_med7"
MOTIONS, TORQUES, GUIDING = "motions", "torques", "guiding"
EXCITE_EXPERIMENTS = (MOTIONS, TORQUES, GUIDING)
R_C, MEAN_R_C, ONE_STAGE, CONDITION, MEMETIC, CERTIFIED = EXCITE_WAYS = (
    "r_c as printed", "r_c of mean rows", "r_c as printed, one stage", "condition number", "memetic", "certified",
)  # fmt: skip
"""Searches for exciting motions: the paper's with its criteria, a memetic one, and ours."""
URDF, CONTROLLER, IDENTIFIED = "as described", "controller's own", "identified"
VENDOR_LIKE, NO_TOOL = "vendor-like", "vendor-like, no tool"
GUIDING_MODELS = (IDENTIFIED, VENDOR_LIKE, NO_TOOL)
"""Models of the arm: of its torques, and of the experiments of guiding, in the order of the paper's Table I."""
