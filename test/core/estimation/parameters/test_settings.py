from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings


def test_left_out_terms_are_listed_in_order():
    assert EstimatorSettings().left_out_terms == ()
    kept = tuple(name for name in ERROR_TERMS if name not in ("velocity", "jitter"))
    assert EstimatorSettings(error_terms=kept).left_out_terms == ("velocity", "jitter")
