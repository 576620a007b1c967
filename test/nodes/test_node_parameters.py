"""Every setting of the core can be given to its node, with the same default unless the node says otherwise here."""

from dataclasses import fields

import pytest

from sysid_ros.core.certification.settings import VerifierSettings
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.planning.settings import RecedingSettings
from sysid_ros.core.procedure import IdentificationSettings
from sysid_ros.nodes.estimator import EstimatorParameters
from sysid_ros.nodes.excitation_planner import ExcitationPlannerParameters
from sysid_ros.nodes.identification import IdentificationParameters
from sysid_ros.nodes.safe_planner import SafePlannerParameters

RECEDING_OWN = {one.name for one in fields(RecedingSettings)} - {
    "duration", "planning_time", "k_range", "position_margin", "distance_margin", "cost", "window", "seed",
}  # fmt: skip


class VerifierParameters(SafePlannerParameters):
    settings = SafePlannerParameters.verifier_settings


class PlannerParameters(SafePlannerParameters):
    settings = SafePlannerParameters.planner_settings


CASES = [
    (EstimatorSettings, EstimatorParameters, set(), set()),
    (ExcitationSettings, ExcitationPlannerParameters, {"seed"}, set()),  # the seed comes with the request
    (VerifierSettings, VerifierParameters, {"piece", "shortest_piece", "rate_tolerance", "distance_tolerance"}, set()),
    (RecedingSettings, PlannerParameters, RECEDING_OWN, {"position_margin", "distance_margin"}),
    (IdentificationSettings, IdentificationParameters, set(), set()),
]


@pytest.mark.parametrize(("settings", "parameters", "left_out", "other"), CASES)
def test_every_setting_is_a_parameter(settings, parameters, left_out, other):
    ours = {one.name: one.default for one in fields(parameters)}
    theirs = {one.name: one.default for one in fields(settings) if one.name not in left_out}
    assert set(theirs) <= set(ours)
    assert {name for name in theirs if theirs[name] != ours[name]} == other


@pytest.mark.parametrize(("settings", "parameters", "left_out", "other"), CASES)
def test_every_parameter_reaches_its_setting(settings, parameters, left_out, other):
    """Each one is changed alone, and the settings the node works with must show it."""
    defaults = parameters()
    for one in fields(settings):
        if one.name in left_out:
            continue
        mine = next(field for field in fields(parameters) if field.name == one.name)
        value = other_value(mine)
        changed = parameters(**{one.name: value})
        assert getattr(changed.settings(), one.name) == value
        assert getattr(defaults.settings(), one.name) != value


def other_value(field):
    """An allowed value that is not the default."""
    metadata, default = field.metadata, field.default
    if field.name == "brake_times":
        return (0.4, 0.6)
    if isinstance(default, tuple):
        return default[:-1]
    if metadata["choices"]:
        return next(choice for choice in metadata["choices"] if choice != default)
    if isinstance(default, bool):
        return not default
    if isinstance(default, str):
        return "all"
    # One rule joins two fields: a trajectory is no longer than the motion that is allowed.
    bound = {"trajectory_duration": 2.0, "max_motion_time": 30.0}.get(field.name)
    if bound is not None:
        return bound
    middle = 0.5 * (metadata["lower"] + min(metadata["upper"], 2.0 * max(default, 1.0)))
    value = int(middle) if isinstance(default, int) else float(middle)
    return value if value != default else type(default)(metadata["lower"])


def test_rules_between_fields_are_refused_where_they_are_given():
    with pytest.raises(ParameterOutOfRange, match="ascending"):
        SafePlannerParameters(brake_times=(0.6, 0.4))
    with pytest.raises(ParameterOutOfRange, match="at most max_motion_time"):
        IdentificationParameters(strategy="periodic", max_motion_time=3.0)
