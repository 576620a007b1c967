"""The report: self-contained, well-formed, the answer first, and honest without one."""

import dataclasses
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from sysid_ros.core.certification.certificate import MarginRow
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode
from sysid_ros.reports import figures, pages
from sysid_ros.reports.report import report_html
from sysid_ros.reports.result import EstimateHistory

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
    assert not re.search(r"https?:|//\w+\.\w+/|@import|url\((?!#)|<script|<link|<iframe", page)


def test_tags_match_and_ids_are_unique(checked):
    assert checked.stack == []
    assert len(checked.ids) == len(set(checked.ids))


def test_references_inside_figures_have_targets(page, checked):
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page))
    assert used and used <= set(checked.ids)


def test_figures_follow_the_theme(page):
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) >= 6
    for color in pages._VARIABLES:
        assert color not in page
    colors = set(re.findall(r"(?:fill|stroke): (#\w+)", "".join(drawings)))
    assert colors == set(), "every colour must be a variable of the page"


def test_the_answer_comes_first(page, result):
    assert page.index("The payload weighs 1.80 kg") < page.index("<section>")
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert f"between {result.estimate.lower[0]:.3f} and {result.estimate.upper[0]:.3f} kg" in text
    assert result.estimate.guarantee.split(" lie ")[0] in text
    assert "10 of 10" in text and "The certificate was checked at sampled instants only." in text


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


def test_an_alarm_shows_no_number_as_an_answer(result):
    nothing = np.full(10, np.nan)
    estimate = dataclasses.replace(
        result.estimate,
        values=nothing,
        lower=nothing,
        upper=nothing,
        is_consistent=False,
        alarm=Alarm(AlarmCode.WINDOW_INCONSISTENT, "joint_2 is inconsistent"),
    )
    page = report_html(dataclasses.replace(result, estimate=estimate, predicted_tau=None, samples=None))
    assert "No usable estimate" in page and "joint_2 is inconsistent." in page and "weighs" not in page


def test_without_data_there_are_no_empty_figures(result):
    empty = EstimateHistory.from_estimates([], [])
    bare = dataclasses.replace(
        result, history=empty, samples=None, predicted_tau=None, information=None, motions=(), reference_q=None
    )
    for figure in (figures.convergence, figures.shrinkage, figures.torque_fit, figures.motion, figures.excitation):
        assert figure(bare) is None
    assert "How the bounds came in" not in report_html(bare)


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
    with pages.styled():
        figure, grid = pages.make_axes((1, 1), (300, 200))
        grid[0, 0].plot([0.123456, 1.0], [0.00123, 0.00125])
        grid[0, 0].set_yticks([0.00123, 0.00125])
        text = pages.inline_svg(figure, "demo", "a demo")
    assert ">0.00123<" in text and 'id="demo-' in text and "xmlns" not in text


def test_envelope_keeps_the_extremes():
    x = np.arange(10_000.0)
    y = np.random.default_rng(0).standard_normal(x.size)
    y[4321] = 9.0
    short_x, short_y = pages.envelope(x, y, 100)
    assert short_x.size <= 200 and np.all(np.diff(short_x) > 0)
    assert short_y.max() == 9.0 and short_y.min() == y.min()


def plan_rows(page, title):
    """The rows of the table under a title, as lists of (class, text)."""
    table = page.split(f"<h3>{title}</h3>")[1].split("</table>")[0].split("<tbody>")[1]
    cells = [re.findall(r'<td(?: class="([^"]*)")?>(.*?)</td>', row) for row in table.split("<tr>")[1:]]
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
