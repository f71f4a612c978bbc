"""The command line. Everything that a command needs besides is imported when it runs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NoReturn

from octopus import __version__
from octopus.verify.command.audit import run_audit, run_functional
from octopus.verify.command.explain import explain, list_rules
from octopus.verify.command.formats import FORMATS
from octopus.verify.command.pair import explain_pair
from octopus.verify.command.settings import LEVELS
from octopus.verify.inputs import MAX_BYTES

AUDITS = {
    "mask": "who sees whom, against descent, mounts and declared windows",
    "rope": "position ids, cached keys and rotary settings",
    "heads": "which key/value head each query head uses",
    "grad": "targets, denominators and how far gradients reach; without files on Octopus's own stack",
    "trace": "what happened, event by event, and the views that follow from it",
    "all": "everything that the files allow",
}


EXAMPLES = """\
examples:
  octopus-verify all packed.npz                          arrays mask, cu_seqlens, position_ids, ...
  octopus-verify mask m.npy cu_seqlens=cu.npy            files that hold one array, with their names
  octopus-verify all packed.npz --format json | jq .     or sarif, github, junit, markdown
  octopus-verify explain OCT101

exit codes: 0 clean, 1 findings, 2 usage or unreadable input, 3 inconclusive, 101 internal error
"""
ARRAYS = """\
An array is known by its name: its key in a .npz, .safetensors or .json, or the name of its .npy file, or NAME=FILE.
  who sees whom   mask, or q_ranges and k_ranges, block tables, FlashMask, cuDNN endpoints, TRL tree rows
  who descends    parents, tin and tout, segments, document_ids, cu_seqlens
  positions       position_ids          padding   attention_mask
  targets         labels, response_mask, loss_tokens and loss_predictors
A model's config.json, a trace.jsonl and dumps of key caches and gradients are read as well: docs/verify.md.
"""


class Parser(argparse.ArgumentParser):
    """Says what was probably meant."""

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2."""
        unknown = re.search(r"unrecognized arguments: --(\w+)", message)
        if unknown and unknown[1] in FORMATS:
            message += f"; did you mean --format {unknown[1]}?"
        command = re.search(r"argument COMMAND: invalid choice: '(.+?)'", message)
        if command and Path(command[1]).suffix:
            message = f"{command[1]} is no command; to audit a file: octopus-verify all {command[1]}"
        super().error(message)


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """All commands, with the options of the one that is asked for: those of heavy ones cost an import."""
    parser = Parser(
        prog="octopus-verify",
        description="Audits of causal masks, positions, heads, gradients, isolation and traces.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"octopus-verify {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, text in AUDITS.items():
        shown = commands.add_parser(
            name, help=text, description=text, epilog=ARRAYS, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        _add_audit(shown, name, command)
    _add_isolate(commands, command)
    _add_explaining(commands)
    _add_foreign(commands, command)
    return parser


def _add_explaining(commands: argparse._SubParsersAction[Parser]) -> None:
    one = commands.add_parser("explain", help="what a code means, why it matters, what to do")
    one.add_argument("code", metavar="OCT101")
    one.set_defaults(run=explain)
    every = commands.add_parser("rules", help="list all codes")
    every.add_argument("--format", choices=("text", "json", "markdown"), default="text")
    every.set_defaults(run=list_rules)
    pair = commands.add_parser("explain-pair", help="why one row sees another, or not")
    pair.add_argument("files", nargs="+", metavar="FILE")
    pair.add_argument("query", type=int, metavar="QUERY_ROW")
    pair.add_argument("key", type=int, metavar="KEY_ROW")
    _add_reading(pair)
    pair.set_defaults(run=explain_pair)


def _add_audit(parser: argparse.ArgumentParser, name: str, asked: str | None) -> None:
    grad = name == "grad"
    parser.add_argument(
        "files", nargs="*" if grad else "+", metavar="FILE", help="a dump, or NAME=FILE: position_ids=p.npy"
    )
    _add_reading(parser)
    _add_reporting(parser)
    if grad and asked == "grad":
        from octopus.verify.functional import command

        command.configure(parser, "grad")
    parser.set_defaults(run=run_audit, command=name)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reading")
    group.add_argument("--mask-convention", choices=("keep", "drop", "additive"), help="what a mask's True or 0 means")
    group.add_argument("--format-in", metavar="NAME", help="the reader to use; found out by default")
    group.add_argument("--window", type=int, metavar="N", help="declare a sliding window of N rows")
    group.add_argument("--sinks", type=int, metavar="N", help="declare that the first N rows stay visible")
    group.add_argument("--heads-differ", action="store_true", help="declare that heads have masks of their own")
    group.add_argument("--allow-pt", action="store_true", help="read .pt files (loads torch, weights only)")
    group.add_argument("--max-bytes", type=int, default=MAX_BYTES, metavar="N", help="largest array (%(default)s)")
    _add_config(group)


def _add_config(group: argparse._ArgumentGroup) -> None:
    where = "settings; by default the nearest pyproject.toml"
    group.add_argument("--config", type=Path, metavar="FILE.toml", help=where)
    group.add_argument("--isolated", action="store_true", help="read no settings")


def _add_reporting(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reporting")
    group.add_argument("--format", choices=tuple(FORMATS), help="text by default")
    group.add_argument("--output", type=Path, metavar="FILE", help="write the report there instead of printing it")
    group.add_argument("--select", action="append", metavar="OCT1", help="only codes that begin so; may be repeated")
    group.add_argument("--ignore", action="append", metavar="OCT1", help="no codes that begin so; may be repeated")
    group.add_argument("--fail-level", choices=tuple(LEVELS), help="findings from here on fail (error)")
    group.add_argument("--max-findings", type=int, metavar="N", help="print at most so many (20)")
    group.add_argument("--baseline", type=Path, metavar="FILE", help="leave out the findings that it lists")
    group.add_argument("--write-baseline", type=Path, metavar="FILE", help="list all findings there")
    group.add_argument("--picture", type=Path, metavar="FILE", help="draw the mask as .html or .png")
    group.add_argument("--exit-zero", action="store_true", help="exit with 0 in spite of findings")
    group.add_argument("-v", "--verbose", action="store_true", help="also list what was checked and what was skipped")


def _add_isolate(commands: argparse._SubParsersAction[Parser], asked: str | None) -> None:
    text = "run the model: does anything reach who must not see it?"
    parser = commands.add_parser("isolate", help=text, description=text)
    if asked == "isolate":
        from octopus.verify.functional import command

        command.configure(parser, "isolate")
    _add_config(parser.add_argument_group("settings"))
    _add_reporting(parser)
    parser.set_defaults(run=run_functional, command="isolate")


def _add_foreign(commands: argparse._SubParsersAction[Parser], asked: str | None) -> None:
    """Commands that live in modules of their own, configured only when they are asked for."""
    selftest = commands.add_parser("selftest", help="plant faults and print which audit finds each")
    convert = commands.add_parser("convert", help="write a dump in another format")
    if asked == "selftest":
        from octopus.verify.selftest import command as selftest_command

        selftest_command.configure(selftest)
        selftest.set_defaults(run=selftest_command.run)
    if asked == "convert":
        from octopus.verify.readers import convert as convert_command

        convert_command.configure(convert)
        convert.set_defaults(run=convert_command.run)

