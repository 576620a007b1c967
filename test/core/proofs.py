"""Proofs for given boxes: what tests of the verifier need of a record of assumptions."""

from dataclasses import replace

from sysid_ros.core.certification import verify as product
from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.collision.scene import Scene


def assume(robot, boxes, scene=None):
    return Assumptions(robot, boxes, robot.payload_prior.nominal, scene or Scene())


def verify(robot, trajectory, boxes, errors, scene=None, settings=None):
    return product.verify(assume(robot, boxes, scene), trajectory, errors, settings)


def certify(robot, trajectory, boxes, errors, scene=None, settings=None, beginning=None, now=0.0):
    beginning = replace(beginning or product.Beginning(), issued_at=now)
    return product.certify(assume(robot, boxes, scene), trajectory, errors, settings, beginning)
