"""The command lines of the experiments of the papers, and of the completion."""

from __future__ import annotations

import argparse

from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.options import add_run_options
from sysid_ros.core.common.command_line import CommandParser, require_numbers
from sysid_ros.papers.names import DUMBBELLS, EXCITE_EXPERIMENTS, EXPERIMENTS, METHODS, PROFILES, SVA_EXPERIMENTS

TABLES = ("table-2", "table-3", "table-4", "table-5")
"""The paper's tables: methods with their errors, successes, correlations and condition numbers."""


def safe_id_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid papers safe-id",
        description="Repeats the experiments of SAFE-ID section VI in simulation: three experiments, five dumbbells, "
        "the paper's eleven methods and SVA's online model. Tables II and III rest on the same runs.",
        examples=("sysid papers safe-id --experiment table-5 --seeds 2", "sysid papers safe-id --done"),
        check=lambda options: require_numbers(options, "seeds", "motions", least=1),
        endings=endings(ExitStatus.FAILED),
    )
    add = parser.add_argument
    add("--experiment", default="all", choices=("all", *TABLES), help="which table (default: all)")
    add("--profile", default=PROFILES[0], choices=PROFILES, help="arm and control laws (default: published)")
    add("--seeds", type=int, default=5, help="arms, each with other true parameters (default: 5)")
    add("--dumbbells", nargs="+", default=list(DUMBBELLS), choices=DUMBBELLS, help="what is held")
    add("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), help="methods")
    add("--tasks", nargs="+", default=list(EXPERIMENTS), choices=EXPERIMENTS, help="experiments")
    add("--motions", type=int, default=50, help="random motions of Table IV (default: 50)")
    add("--done", action="store_true", help="make no runs: show all that the folder has")
    add("--results", default="results/safe-id", help="folder for runs.jsonl and figures")
    add_run_options(parser)
    parser.set_defaults(paper="safe_id")
    return parser


def excite_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid papers excite",
        description="Repeats the experiments of EXCITE section V: exciting motions of a Med7 with a tool by several "
        "criteria and searches, torques of a recording of a real one, and guiding by hand in simulation.",
        examples=("sysid papers excite --quick", "sysid papers excite --experiment torques --recording med7.npz"),
        check=lambda options: require_numbers(options, "seeds", "seconds", least=1),
        endings=endings(ExitStatus.FAILED),
    )
    add = parser.add_argument
    add("--experiment", default="all", choices=("all", *EXCITE_EXPERIMENTS), help="which one (default: all)")
    add(
        "--recording",
        default="",
        metavar="FILE",
        help="NPZ of a real Med7 with fast_t, _q, _tau; without it no torques",
    )
    add("--seconds", type=float, default=25.0, help="processor time of each search (default: 25)")
    add("--seeds", type=int, default=5, help="arms and tools that are guided (default: 5)")
    add("--quick", action="store_true", help="searches of 8 s, and one arm")
    add("--results", default="results/excite", help="folder for runs.jsonl and figures")
    add_run_options(parser)
    parser.set_defaults(paper="excite")
    return parser


LEAST_SCALE = 0.01
"""With shorter experiments there is nothing to see."""


def sva_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid papers sva",
        description="Repeats the experiments of SVA section VI in simulation: a double pendulum offline, a leg online, "
        "an arm whose wrong model is replaced, and the cost of the regressor. Tables are printed, figures written.",
        examples=("sysid papers sva --experiment regressor --seeds 2 --scale 0.2",),
        check=_check_sva,
        endings=endings(ExitStatus.FAILED),
    )
    add = parser.add_argument
    add("--experiment", default="all", choices=("all", *SVA_EXPERIMENTS), help="which one (default: all)")
    add("--seeds", type=int, default=10, help="runs with other parameters and noise (default: 10)")
    add("--scale", type=float, default=1.0, help="durations over those of the experiments (default: 1)")
    add("--results", default="results/sva", help="folder for runs.jsonl and figures")
    add_run_options(parser)
    parser.set_defaults(paper="sva")
    return parser


def _check_sva(options: argparse.Namespace) -> None:
    require_numbers(options, "seeds", least=1)
    require_numbers(options, "scale", least=LEAST_SCALE)


def completion_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid completion",
        description="Prints what a shell needs to complete commands, options, models, payloads and files of sysid.",
        examples=(
            "sysid completion bash > ~/.local/share/bash-completion/completions/sysid",
            "sysid completion zsh > ~/.zfunc/_sysid",
        ),
        endings=endings(),
    )
    parser.add_argument("shell", choices=("bash", "zsh"), help="for which shell")
    return parser
