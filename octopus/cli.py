"""The `octopus` command. Exit codes: 0 done, 1 the run failed, 2 the command line or the configuration is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from octopus import __version__
from octopus.core.errors import ConfigError, OctopusError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Errors a user can mend are printed without a traceback."""
    options = _parser().parse_args(arguments)
    try:
        _train(options)
    except ConfigError as error:
        print(f"octopus: {error}", file=sys.stderr)
        return 2
    except OctopusError as error:
        print(f"octopus: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="octopus", description="One model thinking in many branches.")
    parser.add_argument("--version", action="version", version=f"octopus {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    train = commands.add_parser("train", help="train on the episodes of a configuration file")
    train.add_argument("config", type=Path, metavar="FILE.toml")
    train.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="SECTION.KEY=VALUE",
        help="override one value; may be repeated",
    )
    train.add_argument("--dry-run", action="store_true", help="check the configuration, print all of it, and stop")
    return parser


def _train(options: argparse.Namespace) -> None:
    from octopus.train.config import describe, load_config

    config = load_config(options.config, overrides=options.overrides)
    if options.dry_run:
        print(describe(config))
        return
    # torch loads only once the configuration has been found good.
    from octopus.train.trainer import train

    train(config)


if __name__ == "__main__":
    sys.exit(main())
