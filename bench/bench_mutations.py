"""Single faults put into the kernel, one at a time: how many do its tests against Pinocchio find?

``python bench/bench_mutations.py [--only TEXT] [--results FILE]``. Every fault is a change of one text in a header of
``sysid_ros/core/kernel``, compiled into a folder of its own in place of the kernel; nothing in the checkout changes.
A fault is caught where a test fails or the process dies. The tests must pass with the unchanged kernel, compiled the
same way. A fault takes about a quarter of a minute of processor time; with ``--results`` the benchmark may be stopped
and resumed: a fault that was caught in headers that are still the same is not tried again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pybind11
from _table import print_lead, print_table

ROOT = Path(__file__).resolve().parent.parent
KERNEL = ROOT / "sysid_ros" / "core" / "kernel"
TESTS = "test/core/regressors"
FIRST = f"{TESTS}/test_kernel.py"
TERMS_TESTS = [f"test/core/tracking_bound/test_{name}.py" for name in ("uncertainty", "model_terms")]
LIMIT = 300.0
"""A fault that makes the tests run longer is caught, too [s]."""

# The compiled fault takes the place of the portable kernel before the package is imported; there is no other kernel.
RUN = """
import importlib.util, sys
name = "sysid_ros.core.kernel._portable"
spec = importlib.util.spec_from_file_location(name, sys.argv[1])
sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[name])
sys.modules["sysid_ros.core.kernel.variants"] = None
import pytest
sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--tb=no", *sys.argv[2:]]))
"""


@dataclass(frozen=True)
class Fault:
    """A change of one text that occurs once in a header; ``equivalent`` says why no result can change, if so."""

    file: str
    name: str
    old: str
    new: str
    equivalent: str = ""


NUMBERS, TREE, DYNAMICS, SAMPLES, BINDING, NORMS, TERMS = (
    f"{name}.hpp" for name in ("numbers", "tree", "dynamics", "samples", "binding", "norms", "terms")
)
FAULTS = (
    Fault(NUMBERS, "lanes subtracted the other way round", "return a.value - b.value;", "return b.value - a.value;"),
    Fault(NUMBERS, "a lane is written into the first", "x.value[lane] = value", "x.value[0] = value"),
    Fault(
        NUMBERS, "product rule without its second term", "a.value * b.slope + b.value * a.slope", "a.value * b.slope"
    ),
    Fault(
        NUMBERS,
        "slope keeps its sign in a negation",
        "{-a.value, -a.slope}",
        "{-a.value, a.slope}",
        "no algorithm that is instantiated with gradients negates one",
    ),
    Fault(NUMBERS, "slope not scaled with its value", "{a * b.value, a * b.slope}", "{a * b.value, b.slope}"),
    Fault(NUMBERS, "sign of the derivative of the cosine", "{cosine, -sine * x.slope}", "{cosine, sine * x.slope}"),
    Fault(NUMBERS, "double: sine negated", "s = std::sin(x);", "s = -std::sin(x);"),
    Fault(NUMBERS, "double: cosine is the sine", "c = std::cos(x);", "c = std::sin(x);"),
    Fault(NUMBERS, "third part of pi/2 omitted", "r = r - turns * 2.02226624879595063154e-21;", ""),
    Fault(NUMBERS, "reduction used where it is not exact", "(turns > 1048576.0)", "(turns > 1e300)"),
    Fault(NUMBERS, "likewise for negative angles", "(turns < -1048576.0)", "(turns < -1e300)"),
    Fault(NUMBERS, "last coefficient of the sine", "1.58969099521155010221e-10", "1.58969099521155010221e-11"),
    Fault(NUMBERS, "Taylor's coefficient of the cosine", "1.38888888888741095749e-03", "1.38888888888888888889e-03"),
    Fault(NUMBERS, "quadrant of the cosine", "((quarter + 1) & 2)", "((quarter + 2) & 2)"),
    Fault(NUMBERS, "far angles take the first lane's sine", "std::sin(x.value[k])", "std::sin(x.value[0])"),
    Fault(
        NUMBERS,
        "no special case for what is not a number",
        " | (x.value != x.value)",
        "",
        "both ways give numbers that are not, and samples are checked before",
    ),
    Fault(TREE, "second component of the cross product", "a.z * b.x - a.x * b.z", "a.x * b.z - a.z * b.x"),
    Fault(TREE, "dot product without z", "return a.x * b.x + a.y * b.y + a.z * b.z", "return a.x * b.x + a.y * b.y"),
    Fault(TREE, "index of a constant rotation", "r[3] * v.x + r[4] * v.y + r[5]", "r[3] * v.x + r[4] * v.y + r[7]"),
    Fault(TREE, "index of an inverse rotation", "r[1] * v.x + r[4] * v.y + r[7]", "r[1] * v.x + r[4] * v.y + r[5]"),
    Fault(
        TREE,
        "angular part not rotated",
        "{frame.apply(linear), frame.apply(angular)}",
        "{frame.apply(linear), angular}",
    ),
    Fault(TREE, "angular part rotated the wrong way", "frame.back(angular)", "frame.apply(angular)"),
    Fault(TREE, "spatial product without v x w", " + cross(a.linear, b.angular), ", ", "),
    Fault(TREE, "prismatic joint turned", "sine = T(0.0), cosine = T(1.0)", "sine = T(1.0), cosine = T(0.0)"),
    Fault(TREE, "direction of a joint's turn", "cosine * v.y - sine * v.x", "cosine * v.y + sine * v.x"),
    Fault(TREE, "components of a joint's turn back", "sine * v.x + cosine * v.y", "sine * v.y + cosine * v.x"),
    Fault(TREE, "sign of the lever of a joint", "m.linear + cross(m.ang", "m.linear - cross(m.ang"),
    Fault(
        TREE,
        "lever of a slide",
        "result.linear.x += slide * result.angular.y",
        "result.linear.x += slide * result.angular.x",
    ),
    Fault(TREE, "sign of the lever of a slide", "result.linear.y -= slide", "result.linear.y += slide"),
    Fault(TREE, "frame turned about its axis", "pose.cosine * second - pose.sine", "pose.cosine * second + pose.sine"),
    Fault(TREE, "frame slid backwards", "+ pose.slide * axis", "- pose.slide * axis"),
    Fault(
        DYNAMICS, "row of an inertia", "p[1] * x.x + p[2] * x.y + p[4] * x.z", "p[1] * x.x + p[2] * x.y + p[3] * x.z"
    ),
    Fault(DYNAMICS, "product of inertia counted once", "a.x * x.z + a.z * x.x", "a.x * x.z"),
    Fault(DYNAMICS, "sign of gravity", "up = -gravity * tree", "up = gravity * tree"),
    Fault(DYNAMICS, "centripetal acceleration omitted", " + cross(w, cross(w, joint.place)))", ")"),
    Fault(
        DYNAMICS,
        "Coriolis acceleration of a slide halved",
        "speed = 2.0 * joint.pitch * v;",
        "speed = joint.pitch * v;",
    ),
    Fault(DYNAMICS, "angular acceleration omitted along a slide", "(r.w.y * r.w.z - r.u.x)", "(r.w.y * r.w.z)"),
    Fault(
        DYNAMICS,
        "sign of the centripetal term of a slide",
        "joint.pitch * a - pose.slide",
        "joint.pitch * a + pose.slide",
    ),
    Fault(DYNAMICS, "sign of a gyroscopic term", "r.u.y -= speed * r.w.x", "r.u.y += speed * r.w.x"),
    Fault(DYNAMICS, "a joint does not turn its body", "r.w.z += speed;", ""),
    Fault(DYNAMICS, "wrench without gyroscopic moment", " + cross(w, times_inertia(p + 4, w))}", "}"),
    Fault(DYNAMICS, "columns of c without w . w", " - dot(w, w) * l + cross(d, a)", " + cross(d, a)"),
    Fault(DYNAMICS, "sign of a x w", "inertia_columns(cross(a, w), w", "inertia_columns(cross(w, a), w"),
    Fault(DYNAMICS, "reverse: factor 2 of a square", "- T(2.0) * dot(l, c) * w", "- dot(l, c) * w"),
    Fault(DYNAMICS, "reverse: second half of a product", "dot(w, c) * l + dot(l, w) * c", "dot(w, c) * l"),
    Fault(DYNAMICS, "sign of a column of the momentum", "cross(s.linear, w) + cross(v", "cross(s.linear, w) - cross(v"),
    Fault(DYNAMICS, "weight of the mass omitted", "out[0] += dot(s.linear, gravity);", ""),
    Fault(DYNAMICS, "sign of the weight of c", "cross(gravity, s.angular)", "cross(s.angular, gravity)"),
    Fault(
        DYNAMICS,
        "rate of a joint's axis",
        "cross(twists_[i].motion, own_",
        "cross(twists_[joint.parent < 0 ? i : joint.parent].motion, own_",
    ),
    Fault(DYNAMICS, "rates taken from the axes", "to_child(joint, rates_[", "to_child(joint, axes_["),
    Fault(
        DYNAMICS, "reverse: wrench turned the wrong way", "? wrench : wrench.back(turn)", "? wrench : wrench.in(turn)"
    ),
    Fault(DYNAMICS, "reverse: gyroscopic term of v", "by.u.x * w.y - by.u.y * w.x", "by.u.x * w.y + by.u.y * w.x"),
    Fault(DYNAMICS, "reverse: w behind the joint for before", "here.w.z - speed}", "here.w.z}"),
    Fault(DYNAMICS, "reverse: u behind the joint for before", "here.u.x - speed * w.y", "here.u.x"),
    Fault(DYNAMICS, "reverse: helical joints lose a term", "by_v += 2.0 * joint.pitch", "by_v = 2.0 * joint.pitch"),
    Fault(
        DYNAMICS,
        "reverse: component of a slide",
        "by.w.z += e * (by.d.x * w.x + by.d.y * w.y)",
        "by.w.z += e * (by.d.x * w.x)",
    ),
    Fault(DYNAMICS, "reverse: axes along a slide", "linear.x * a.y - by_axes[k].linear.y * a.x", "linear.x * a.y"),
    Fault(DYNAMICS, "reverse: lever of the axes", ".angular) + cross(p, linear)", ".angular) - cross(p, linear)"),
    Fault(DYNAMICS, "reverse: factor 2 of the centripetal term", "- T(2.0) * dot(x, p) * w0", "- dot(x, p) * w0"),
    Fault(SAMPLES, "all lanes get the first sample", "rows + std::min(first + lane, samples - 1)", "rows + first"),
    Fault(
        SAMPLES,
        "bodies placed by their number, not the last",
        "1 + *std::max_element(bodies.begin(), bodies.end())",
        "int(bodies.size())",
    ),
    Fault(SAMPLES, "sign of viscous friction", "friction[1] = sign *", "friction[1] = -sign *"),
    Fault(SAMPLES, "armature with the rows of friction", "sign * armature[at]", "sign * viscous[at]"),
    Fault(SAMPLES, "all lanes get the first block", "get_lane(block[k], lane)", "get_lane(block[k], 0)"),
    Fault(SAMPLES, "weights looked at in their last column", "has_any || row[k] != 0.0", "row[k] != 0.0"),
    Fault(SAMPLES, "friction of the next part", "is_felt[part] ? friction[part]", "is_felt[part] ? friction[part - 1]"),
    Fault(SAMPLES, "polarisation with one velocity", "0.5 * (at_[n_ + j] - at_[2 * n_ + j])", "0.5 * at_[n_ + j]"),
    Fault(SAMPLES, "gravity cancels in the difference", "&acceleration_[n_], -0.5", "&acceleration_[n_], 0.5"),
    Fault(
        SAMPLES, "sign of the offset in W_c", "direction, v, nullptr, -1.0, -1.0", "direction, v, nullptr, -1.0, 1.0"
    ),
    Fault(SAMPLES, "an integral of the last samples", "sum[k] += weight", "sum[k] = weight"),
    Fault(SAMPLES, "an integral of one lane", "get_lane(sums[k], lane)", "get_lane(sums[k], 0)"),
    Fault(SAMPLES, "derivatives by q for those by v", "at[by_velocity * n + first + d]", "at[first + d]"),
    Fault(
        SAMPLES,
        "derivatives of the first eight joints",
        "by_force[(entry + k) * n + first + d]",
        "by_force[(entry + k) * n + d]",
    ),
    Fault(SAMPLES, "moment of a joint's axis", "cross(here.origin, here.z)", "cross(here.z, here.origin)"),
    Fault(SAMPLES, "axes of the body", "joint.own.r + 3 * axis", "joint.turn.r + 3 * axis"),
    Fault(BINDING, "a rotation taken for none", "turn.is_identity && rows[k]", "turn.is_identity || rows[k]"),
    Fault(BINDING, "parameters in the frame of the joint", "make_turn(frame + 9 * i)", "make_turn(frame)"),
    Fault(NORMS, "a test of eigenvalues that always passes", "if (!(pivot > 0.0)) return false;", ""),
    Fault(NORMS, "reflection with the other sign", "< 0.0 ? -1.0 : 1.0", "< 0.0 ? 1.0 : -1.0"),
    Fault(
        NORMS,
        "entries beside the diagonal not squared",
        "square[k] = a[k + 1][k] * a[k + 1][k] + below;",
        "square[k] = below;",
    ),
    Fault(
        NORMS, "iteration stops early", "if (!(step > 1e-15 * size)) return x;", "if (!(step > 1e-3 * size)) return x;"
    ),
    Fault(NORMS, "second derivative of the determinant", "(second - 2.0 * slope * first)", "(second - slope * first)"),
    Fault(NORMS, "mixed products counted once", "o > p ? sum.at(i, j) + sum.at(j, i) : sum.at(i, j)", "sum.at(i, j)"),
    Fault(NORMS, "magnitudes of entries", "const Lanes<4> size = magnitude(one);", "const Lanes<4> size = one;"),
    Fault(
        TERMS,
        "armatures have no inertia",
        "inertia_.at(i, i) + known_.nominal[kInertial * n_ + i]",
        "inertia_.at(i, i)",
    ),
    Fault(
        TERMS,
        "order of two axes",
        "bodies_.motion(i, before), bodies_.motion(i, after)",
        "bodies_.motion(i, after), bodies_.motion(i, before)",
    ),
    Fault(TERMS, "a part of the Christoffel symbols", "half[b][a][x] + half[b][x][a]", "half[b][a][x]"),
    Fault(TERMS, "drag without the Christoffel matrix", "add(m, -1.0, coriolis[x], drag_[x]);", ""),
    Fault(TERMS, "slope of E halved", "add(m, 1.0, transposed(m, coriolis[x]), ratio_[x]);", ""),
    Fault(TERMS, "rate of the drag", "add(m, -1.0, now, drag_now_);", "add(m, 1.0, now, drag_now_);"),
    Fault(
        TERMS,
        "a changing inertia",
        "result.row[x] -= value * turned_[x].row[b];",
        "result.row[x] -= 0.0 * turned_[x].row[b];",
    ),
    Fault(TERMS, "weights of the spread", "radius / size, x[k]", "radius, x[k]"),
    Fault(TERMS, "the center of the payloads", "collect(&off_[0], middle);", "collect(&own_[0], middle);"),
    Fault(TERMS, "velocity in other coordinates", "xi[a] += root_.at(j, a) * v[j];", "xi[a] += root_.at(a, j) * v[j];"),
)


def read_sources(fault: Fault | None) -> dict[str, str]:
    """Return the texts of the portable kernel by file, with a fault or as they are."""
    texts = {path.name: path.read_text() for path in sorted([*KERNEL.glob("*.hpp"), KERNEL / "portable.cpp"])}
    if fault:
        texts[fault.file] = texts[fault.file].replace(fault.old, fault.new)
    return texts


def compile_kernel(folder: Path, fault: Fault | None) -> Path:
    """Compile the portable kernel with a fault, or as it is.

    Raises:
        SystemExit: It does not compile.
    """
    for name, text in read_sources(fault).items():
        (folder / name).write_text(text)
    module = folder / "_portable.so"
    # Mathematics as setup.py compiles it, but for speed.
    words = [os.environ.get("CXX", "g++"), "-O1", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-Wno-psabi"]
    words += ["-fno-math-errno", "-fno-trapping-math", f"-I{pybind11.get_include()}"]
    words += [f"-I{sysconfig.get_paths()['include']}", str(folder / "portable.cpp"), "-o", str(module)]
    compiled = subprocess.run(words, capture_output=True, text=True)
    if compiled.returncode:
        raise SystemExit(f"'{fault.name if fault else 'no fault'}' does not compile:\n{compiled.stderr}")
    return module


def run_tests(module: Path, *tests: str) -> str:
    """Run tests with a kernel and return what failed first, empty if nothing did.

    Raises:
        SystemExit: Pytest itself has failed.
    """
    words = [sys.executable, "-c", RUN, str(module), *tests]
    try:
        run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return "time limit"
    if run.returncode < 0:
        return f"the process died (signal {-run.returncode})"
    if run.returncode == 1:
        failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0].split(" - ")[0].rpartition("::")[2]
    if run.returncode:
        raise SystemExit(f"pytest ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    return ""


def find(fault: Fault | None) -> str:
    """Return which test finds a fault, empty if none does."""
    with tempfile.TemporaryDirectory() as folder:
        module = compile_kernel(Path(folder), fault)
        if fault and fault.file in (NORMS, TERMS):
            return run_tests(module, *TERMS_TESTS)
        return (
            run_tests(module, FIRST) or run_tests(module, TESTS) or ("" if fault else run_tests(module, *TERMS_TESTS))
        )


class Results:
    """Which faults were caught, kept in a file if there is one; survivors are always tried again."""

    def __init__(self, path: Path | None):
        self._path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self._caught: dict[str, str] = dict(json.loads(line) for line in lines)

    def find(self, fault: Fault) -> str:
        """Return which test finds a fault, empty if none does."""
        key = hashlib.sha256(json.dumps(read_sources(fault)).encode()).hexdigest()
        if key not in self._caught:
            test = find(fault)
            print(f"{fault.file}: {fault.name}: {test or 'SURVIVED'}", file=sys.stderr, flush=True)
            if not test:
                return ""
            self._caught[key] = test
            if self._path:
                with self._path.open("a") as file:
                    file.write(json.dumps([key, test]) + "\n")
        return self._caught[key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose file and name contain this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="faults at a time (default: one a core)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keeps what was caught, to go on from there")
    parser.add_argument("--check", action="store_true", help="only look whether the texts of all faults are there")
    arguments = parser.parse_args()
    faults = [fault for fault in FAULTS if arguments.only in f"{fault.file}: {fault.name}"]
    texts = {path.name: path.read_text() for path in KERNEL.glob("*.hpp")}
    lost = [f"{fault.file}: {fault.old!r}" for fault in FAULTS if texts[fault.file].count(fault.old) != 1]
    if lost:
        raise SystemExit("texts that do not occur once any more:\n" + "\n".join(lost))
    if arguments.check:
        return
    wrong = find(None)
    if wrong:
        raise SystemExit(f"the tests fail without a fault, too: {wrong}")
    results = Results(arguments.results)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        found = dict(zip(faults, pool.map(results.find, faults), strict=True))
    real = [fault for fault in faults if not fault.equivalent]
    survivors = [fault.name for fault in real if not found[fault]]
    print_lead(
        f"{len(real)} faults that change results, {len(real) - len(survivors)} caught; survivors: "
        f"{', '.join(survivors) or 'none'}."
    )
    print_table(
        ["file", "faults", "caught", "survivors"],
        [
            [
                file,
                sum(fault.file == file for fault in real),
                sum(fault.file == file and bool(found[fault]) for fault in real),
                ", ".join(fault.name for fault in real if fault.file == file and not found[fault]) or "none",
            ]
            for file in dict.fromkeys(fault.file for fault in real)
        ],
        "Faults and whether the tests find them",
    )
    print_table(
        ["file", "fault", "found by"],
        [[fault.file, fault.name, found[fault] or fault.equivalent or "nothing"] for fault in faults],
        "Every fault",
    )
    if survivors:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
