"""The report: self-contained, well-formed, the answer first, and honest without one."""

import base64
import dataclasses
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser
from itertools import product

import numpy as np
import pytest
from scipy.signal import savgol_coeffs, savgol_filter

from sysid_ros.core.certification.certificate import MarginRow
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.robot import tool_transform
from sysid_ros.reports import figures
from sysid_ros.reports.payload import summarize_payload
from sysid_ros.reports.picture import arm_pictures
from sysid_ros.reports.plots import ACCENT, Plot, envelope, inline_plots, round_numbers
from sysid_ros.reports.report import report_html
from sysid_ros.reports.result import EstimateHistory
from sysid_ros.reports.torque_fit import FILTER_ORDER, derivative_weights, differentiate, predict_torque

VOID = {"meta", "br", "img", "link", "hr", "input"}


class _Checker(HTMLParser):
    """Matches tags and collects ids, outside links and text."""

    def __init__(self):
        super().__init__()
        self.stack, self.ids, self.outside, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.stack.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "data") and not value.startswith("#"):
                self.outside.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(result):
    return report_html(result)


@pytest.fixture(scope="module")
def checked(page):
    checker = _Checker()
    checker.feed(page)
    return checker


def test_the_page_loads_nothing(page, checked):
    assert checked.outside == []
    page = page.replace(pages_svg_namespace(), "")  # a name, not an address
    assert not re.search(r"https?:|//\w+\.\w+/|@import|url\((?!#)|<script |<link|<iframe|fetch|XMLHttp|import\(", page)
    assert page.count("<script>") == 1


def pages_svg_namespace():
    return '"http://www.w3.org/2000/svg"'


def test_the_policy_allows_the_script_of_the_page_and_nothing_else(page):
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_lines_that_are_read_out_are_on_the_page(page, checked, result):
    plots = [json.loads(unescape(text)) for text in re.findall(r'data-plot="([^"]*)"', page)]
    lines = [(one, label) for plot in plots for one, label in plot["lines"]]
    assert len(plots) >= 20 and {one for one, _ in lines} <= set(checked.ids)
    assert {"lower", "estimate", "upper", "measured", "predicted", *result.robot.joint_names} <= {n for _, n in lines}
    mass = plots[0]
    left, right, first, last = mass["x"]
    assert first == 0.0 and last >= result.history.time[-1] and right - left > 200.0
    # the last point of the upper bound, read from its place in the drawing
    path = re.search(r'id="convergence0-line0">\s*<path d="([^"]*)"', page).group(1)
    x, y = (float(text) for text in re.findall(r"-?[\d.]+", path)[-2:])
    bottom, top, low, high = mass["y"]
    seconds = first + (last - first) * (x - left) / (right - left)
    value = low + (high - low) * (bottom - y) / (bottom - top)
    assert seconds == pytest.approx(result.history.time[-1], abs=0.01)
    assert value == pytest.approx(result.history.upper[-1, 0], abs=0.001)


def test_tags_match_ids_are_unique_and_references_have_targets(page, checked):
    assert checked.stack == []
    assert len(checked.ids) == len(set(checked.ids))
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page))
    assert used and used <= set(checked.ids)


def test_figures_follow_the_theme(page):
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) >= 40
    colors = set(re.findall(r"(?:fill|stroke)(?::|=\")\s*([^;\"]+)", "".join(drawings)))
    assert len(colors) > 8 and all(color == "none" or color.startswith("var(--") for color in colors), colors


def test_the_answer_comes_first(page, result):
    assert page.index(f"The payload weighs {result.estimate.values[0]:.2f} kg") < page.index("<section>")
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert f"between {result.estimate.lower[0]:.3f} and {result.estimate.upper[0]:.3f} kg" in text
    assert result.estimate.guarantee.split(" lie ")[0] in text
    assert "10 of 10" in text and "The certificate was checked at sampled instants only." in text


def test_a_centre_of_mass_that_the_data_do_not_know_has_no_number(result):
    weighed = dataclasses.replace(result.estimate, narrower=frozenset({Quantity.MASS}))
    text = report_html(dataclasses.replace(result, estimate=weighed))
    assert re.search(r"Centre of mass, tool frame.{0,200}not known", text, re.DOTALL)
    assert "no better than before the data" in text and "no better than before the data" not in report_html(result)


def test_names_of_the_run_are_escaped(result):
    model, names = result.robot.pin_model.copy(), tuple(f"<j{i}>" for i in range(7))
    for i, name in enumerate(names):
        model.names[i + 1] = name
    robot = dataclasses.replace(result.robot, name="<b>arm</b>", joint_names=names, pin_model=model)
    samples, history = result.samples.slice(0, 50), EstimateHistory.from_estimates([], [])
    short = dataclasses.replace(
        result, robot=robot, warnings=("a < b & c",), samples=samples, predicted_tau=samples.tau, reference_q=None,
        reference_v=None, history=history, information=None,
    )  # fmt: skip
    page = report_html(short)
    assert "<b>arm</b>" not in page and "<j1>" not in page and "A &lt; b &amp; c." in page


@pytest.mark.usefixtures("without_figures")
def test_bounds_without_guarantee_are_not_called_certain(result):
    estimate = dataclasses.replace(result.estimate, method="sensitivity", guarantee="none", is_guaranteed=False)
    page = report_html(dataclasses.replace(result, estimate=estimate, samples=None, truth=None))
    assert "Bounds without guarantee" in page and "certain" not in page and "not guaranteed" in page
    assert "Truth inside" not in page


def test_the_page_lists_what_the_data_need_not_show(page):
    assert "What such data need not show" in page and "Identify with the empty hand" in page
    assert "What could be wrong" not in page, "hypotheses belong to alarms"


def test_without_data_there_are_no_empty_figures(result):
    history = result.history
    empty = EstimateHistory.from_estimates([], [])
    bare = dataclasses.replace(
        result, history=empty, samples=None, predicted_tau=None, information=None, motions=(), reference_q=None
    )
    for figure in (figures.convergence, figures.shrinkage, figures.torque_fit, figures.motion, figures.excitation):
        assert figure(bare) is None and figure(result) is not None
    assert "How the bounds came in" not in report_html(bare)
    # An alarm in the first window: nothing was ever known.
    unknown = {name: np.full_like(getattr(history, name), np.nan) for name in ("lower", "upper", "values")}
    unknown["condition_number"] = np.full_like(history.condition_number, np.inf)
    nothing = dataclasses.replace(
        result, history=dataclasses.replace(history, **unknown), information=np.zeros((10, 10))
    )
    for figure in (figures.convergence, figures.shrinkage, figures.excitation):
        assert figure(nothing) is None


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_the_page_says_what_the_data_know(page, result):
    assert "The data determine all 10 combinations" in page
    shrinkage = sorted(result.shrinkage)
    least, most = re.search(r"bounds are between (\S+) \(.*?\) and (\S+) \(", page).groups()
    assert (float(least), float(most)) == (
        pytest.approx(shrinkage[0], rel=0.02),
        pytest.approx(shrinkage[-1], rel=0.02),
    )
    mass_only = np.zeros((10, 10))
    mass_only[0, 0] = 1e6
    page = report_html(dataclasses.replace(result, information=mass_only))
    assert "9 of 10 combinations that can be known have not been excited" in page
    assert re.search(r"Moving joint_\d.* at up to .* for 5 s would determine", page)
    broken = report_html(dataclasses.replace(result, information=np.zeros((10, 10))))
    assert "combinations" not in broken  # no data, nothing to say


def test_labels_of_figures_keep_their_digits():
    plot = Plot("title & more")
    plot.line([0.123456, 1.0], [0.00123, 0.00125], ACCENT)
    text = inline_plots("demo", "a demo", [plot])
    assert ">0.001230<" in text and ">0.001250<" in text and 'id="demo0-' in text
    assert "title &amp; more" in text and "xmlns" not in text and "data-plot" not in text


@pytest.mark.parametrize("seed", range(20))
def test_ticks_are_round_within_the_range_and_few(seed):
    rng = np.random.default_rng(seed)
    lower = rng.normal() * 10.0 ** rng.integers(-6, 6)
    upper = lower + 10.0 ** rng.uniform(-5, 6)
    ticks, spare = round_numbers(lower, upper, 4), 1e-6 * (upper - lower)
    assert 1 <= len(ticks) <= 5 and lower - spare <= ticks[0] and ticks[-1] <= upper + spare
    steps = np.diff(ticks)
    assert np.allclose(steps, steps[:1]) and all(f"{step:.1e}"[:3] in ("1.0", "2.0", "2.5", "5.0") for step in steps)


@pytest.mark.parametrize("logs", ["", "y"])
def test_values_that_are_none_interrupt_a_line_and_do_not_reach_the_axes(logs):
    plot = Plot("gaps", logs=logs)
    plot.line(np.arange(6.0), [1.0, np.nan, np.inf, -np.inf if logs else 2.0, 30.0, 20.0], ACCENT, label="line")
    text = plot.svg("gap")
    path = re.search(r'id="gap-line0"><path d="([^"]*)"', text).group(1)
    assert "nan" not in text and "inf" not in text and path.count("M") == 2


def test_one_value_alone_still_has_axes():
    for logs in ("", "y"):
        plot = Plot("one", logs=logs)
        plot.line([0.0, 0.0], [5.0, 5.0], ACCENT)
        assert len(re.findall(r">[\d.]+</text>", plot.svg("one"))) >= 2


def test_the_picture_shows_the_box_of_the_centre_of_mass_where_the_arm_holds_it(result):
    pictures = [json.loads(unescape(text)) for text in re.findall(r'data-picture="([^"]*)"', arm_pictures(result))]
    assert len(pictures) == 2
    robot, tool = result.robot, summarize_payload(result, result.robot.tool_frame)
    rotations, origins = BodyPoses(robot).compute(result.samples.q[-1])
    turned, moved = tool_transform(robot)
    corners = np.array(list(product(*zip(tool.com.lower, tool.com.upper, strict=True))))
    corners = origins[-1] + (corners @ turned.T + moved) @ rotations[-1].T
    for picture in pictures:
        faces = np.array([part for part in picture["parts"] if len(part) == 4])
        assert faces.shape == (6, 4, 3)
        assert {tuple(p) for p in faces.reshape(-1, 3).tolist()} == {tuple(p) for p in np.round(corners, 4).tolist()}
    spheres = sum(len(part) == 1 for part in pictures[0]["parts"])
    assert spheres == len(robot.spheres) + 3  # and the names of three axes


def test_without_a_usable_estimate_there_is_no_picture(result):
    nothing = dataclasses.replace(result.estimate, narrower=frozenset())
    assert arm_pictures(dataclasses.replace(result, estimate=nothing)) is None


def test_an_arm_without_spheres_is_drawn_by_its_joints(result):
    bare = dataclasses.replace(result, robot=dataclasses.replace(result.robot, spheres=()))
    assert 'class="bone arm"' in arm_pictures(bare)


@pytest.mark.usefixtures("without_figures")
def test_residuals_are_judged_by_all_that_the_assumptions_allow(result):
    """With an arm that is heavier than nominal, within its box, the sensor alone explains little; all together do."""
    robot = result.robot
    theta = robot.theta_nominal.copy()
    theta[: 10 * robot.n] *= 1.04
    heavier = dataclasses.replace(robot, theta_nominal=theta)
    q, v, a = result.motions[0].trajectory.sample(result.samples.seconds)
    tau = predict_torque(heavier, result.truth, q, v, a)
    samples = dataclasses.replace(result.samples, q=q, v=v, tau=tau)
    # Of an arm whose torques do not vibrate: vibration alone explains as much.
    n, few = robot.n, {"effort_mean_error": np.full(robot.n, np.inf)}
    steady = dataclasses.replace(robot.sensors, effort_absolute_error=np.full(n, 0.02), **few)
    robot = dataclasses.replace(robot, sensors=steady)
    page = report_html(dataclasses.replace(result, robot=robot, samples=samples))
    rows = plan_rows(page, "Residual by joint")
    explained, claimed = (np.array([float(row[k][1].rstrip(" %")) for row in rows]) for k in (5, 6))
    assert explained.min() > 97.0 and claimed.min() < 75.0


def test_envelope_keeps_the_extremes():
    x = np.arange(10_000.0)
    y = np.random.default_rng(0).standard_normal(x.size)
    y[4321] = 9.0
    short_x, short_y = envelope(x, y, 100)
    assert short_x.size <= 200 and np.all(np.diff(short_x) > 0)
    assert short_y.max() == 9.0 and short_y.min() == y.min()


def plan_rows(page, title):
    """The rows of the table under a title, as lists of (class, text)."""
    table = page.split(f"<h3>{title}</h3>")[1].split("</table>")[0].split("<tbody>")[1]
    cell = r'<td(?: class="([^"]*)")?(?: data-head="[^"]*")?>(.*?)</td>'
    cells = [re.findall(cell, row) for row in table.split("<tr>")[1:]]
    plain = lambda text: unescape(re.sub("<[^>]*>", " ", text)).replace("\N{NO-BREAK SPACE}", " ")  # noqa: E731
    return [[(css, plain(text)) for css, text in row] for row in cells]


def test_plans_that_take_over_are_shown_with_the_part_that_was_followed(result, motion):
    def rows(torque, time):
        place = f"joint 'joint_2', {time:.3f} s"
        return (MarginRow("torque", f"{100 * torque:.1f} %", place, time, torque),)

    first = dataclasses.replace(motion, followed=1.5, ending="plan 2 took over", margins=rows(0.03, 2.9), claims="a<b")
    second = dataclasses.replace(
        motion, start=1.5, followed=3.0, ending="to its end", margins=rows(0.05, 1.0), claims="a<b"
    )
    third = dataclasses.replace(motion, start=4.0, followed=0.0, ending="not followed", claims="another")
    page = report_html(dataclasses.replace(result, motions=(first, second, third)))
    plans = plan_rows(page, "Plans")
    assert [[text for _, text in row][2:6] for row in plans] == [
        ["0.00 s", "6.00 s", "1.50 s", "plan 2 took over"],
        ["1.50 s", "6.00 s", "3.00 s", "to its end"],
        ["4.00 s", "6.00 s", "0.00 s", "not followed"],
    ]
    (_, one), (_, other), (_, none) = plan_rows(page, "Smallest margins")
    # The smallest is bold; it is grey, too, for the arm never came there.
    assert one == ("text wide unit strong", "3.0 %  joint 'joint_2', 2.900 s ")
    assert other == ("text wide", "5.0 %  joint 'joint_2', 1.000 s ") and none[1] == "–"
    assert "<li>Plans 1, 2: a&lt;b</li><li>Plan 3: another</li>" in page


@pytest.mark.usefixtures("without_figures")
def test_of_motions_without_certificate_and_samples_nothing_is_claimed(result, motion):
    page = report_html(dataclasses.replace(result, motions=(dataclasses.replace(motion, claims=None),)))
    assert plan_rows(page, "Plans")[0][4][1] == "unknown" and "Smallest margins" not in page
    assert "All plans: Nothing is known of its certificate." in page


@pytest.mark.parametrize(("count", "length"), [(200, 61), (61, 61), (10, 5), (70, 31)])
def test_derivatives_are_those_of_a_savitzky_golay_filter(count, length):
    values = np.random.default_rng(count).normal(size=(count, 3))
    period_ns = 1_000_000
    stamps = period_ns * np.arange(count, dtype=np.int64)
    expected = savgol_filter(values, length, FILTER_ORDER, deriv=1, delta=1e-9 * period_ns, axis=0)
    found = differentiate(stamps, values, 1e-9 * period_ns * (length - 1))
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-9 * np.abs(expected).max())
    weights = savgol_coeffs(length, FILTER_ORDER, deriv=1)[::-1]
    np.testing.assert_allclose(derivative_weights(length), weights, atol=1e-12)
