"""The proof that a plan is safe, over continuous time (docs/planning.md)."""

from sysid_ros.core.planning.verifier.settings import VerifierSettings
from sysid_ros.core.planning.verifier.verify import Verification, certify, make_certificate, require_scene, verify

__all__ = ["Verification", "VerifierSettings", "certify", "make_certificate", "require_scene", "verify"]
