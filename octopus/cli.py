"""The `octopus` command.

Exit codes: 0 done, 1 the run failed, 2 the command line or the configuration is wrong, 143 SIGTERM ended the run, 130
SIGINT did.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from octopus import __version__
from octopus.core.errors import ConfigError, OctopusError, Stopped
from octopus.retrieval.errors import RetrievalError

if TYPE_CHECKING:
    from octopus.rollout.spans import Spans
    from octopus.train.config import TrainConfig
    from octopus.train.job_config import JobConfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Errors a user can mend are printed without a traceback."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except ConfigError as error:
        print(f"octopus: {error}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(f"octopus: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except (OctopusError, RetrievalError) as error:
        print(f"octopus: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="octopus", description="One model thinking in many branches.")
    parser.add_argument("--version", action="version", version=f"octopus {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    train = commands.add_parser("train", help="run the training that a configuration file describes")
    train.set_defaults(run=_train)
    _add_run(train)
    train.add_argument(
        "--dry-run", action="store_true", help="check the configuration, print all of it, and stop"
    )
    serve = commands.add_parser("serve", help="run a job, and serve its metrics and status over HTTP meanwhile")
    serve.set_defaults(run=_serve)
    _add_run(serve)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=_port, default=9464, help="TCP port, 0 for any that is free (default: 9464)")
    serve.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with the bearer token; needed off loopback"
    )
    evaluate = commands.add_parser("eval", help="how many questions a policy answers exactly right")
    evaluate.set_defaults(run=_evaluate)
    evaluate.add_argument(
        "model", metavar="MODEL", help="folder of a policy or of a finished job, or `shipped`"
    )
    evaluate.add_argument(
        "--questions", type=_count, default=200, metavar="N", help="how many (default: 200)"
    )
    evaluate.add_argument("--mode", choices=("octopus", "text", "single"), default="octopus")
    evaluate.add_argument("--split", choices=("train", "validation", "test"), default="test")
    evaluate.add_argument(
        "--parts", type=_counts, default=(1, 2, 3, 4), metavar="1,2", help="numbers of parts"
    )
    evaluate.add_argument(
        "--lost", type=_share, default=0.25, help="share of searches that fail (default: 0.25)"
    )
    evaluate.add_argument("--seed", type=int, default=0, help="of the questions")
    evaluate.add_argument("--device", default="cpu")
    report = commands.add_parser("report", help="print the final table of a job again")
    report.set_defaults(run=_report)
    report.add_argument("folder", type=Path, metavar="RUN_FOLDER")
    export = commands.add_parser("export", help="write a policy as a Hugging Face folder")
    export.set_defaults(run=_export)
    export.add_argument("source", type=Path, metavar="RUN_OR_SAVE", help="folder of a run, a save or a policy")
    export.add_argument("out", type=Path, metavar="OUT", help="folder to write: new or empty")
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="FILE.toml", help='a job if it says kind = "job"')
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="SECTION.KEY=VALUE",
        help="override one value; may be repeated",
    )
    parser.add_argument("--resume", action="store_true", help="go on from the newest save in the run's folder")
    parser.add_argument(
        "--spans", action="store_true", help="send spans over OTLP; where to is said by OTEL_EXPORTER_OTLP_ENDPOINT"
    )


def _config(options: argparse.Namespace) -> TrainConfig | JobConfig:
    from octopus.train.config import parse_config, read_table
    from octopus.train.job_config import is_job, parse_job

    overrides = [*options.overrides, *(["run.resume=true"] if options.resume else [])]
    table, source = read_table(options.config, overrides=overrides)
    return (parse_job if is_job(table) else parse_config)(table, source=source)


def _hold_sigterm() -> None:
    """SIGTERM waits in the kernel until the run listens: one that comes while libraries load is not lost.

    Threads and processes that begin meanwhile never see it. Ctrl-C still ends at once what has not begun.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _serve(options: argparse.Namespace) -> None:
    _hold_sigterm()
    from octopus.train.config import TrainConfig

    config = _config(options)
    if isinstance(config, TrainConfig):
        raise ConfigError(f'{options.config}: expected a job (kind = "job") to serve; use octopus train')
    with _observed(options) as spans:
        try:
            from octopus.train.service.serving import serve_job
        except ModuleNotFoundError as missing:
            raise ConfigError(f"octopus serve needs {missing.name}: pip install 'octopus-kv[serve]'") from missing
        serve_job(config, host=options.host, port=options.port, token_file=options.token_file, spans=spans)


def _train(options: argparse.Namespace) -> None:
    _hold_sigterm()
    from octopus.train.config import TrainConfig, describe

    config = _config(options)
    if options.dry_run:
        print(describe(config))
        return
    # torch loads only once the configuration has been found good.
    if isinstance(config, TrainConfig):
        from octopus.train.trainer import train

        if options.spans:
            raise ConfigError(f'{options.config}: expected a job (kind = "job") for --spans')
        train(config)
    else:
        with _observed(options) as spans:
            from octopus.train.job import run_job

            run_job(config, spans=spans)


@contextmanager
def _observed(options: argparse.Namespace) -> Iterator[Spans]:
    """Logs meanwhile, and says where spans go. Nothing of OpenTelemetry is loaded unless they are asked for.

    Load what loads torch within, because libraries speak while they are loaded.
    """
    from octopus.rollout.spans import NO_SPANS
    from octopus.train.logs import models_logged

    if not options.spans:
        with models_logged(sys.stderr):
            yield NO_SPANS
        return
    try:
        from octopus.train.tracing import exported
    except ModuleNotFoundError as missing:
        raise ConfigError(f"--spans needs {missing.name}: pip install 'octopus-kv[otel]'") from missing
    with models_logged(sys.stderr), exported() as spans:
        yield spans


def _evaluate(options: argparse.Namespace) -> None:
    from octopus.train.logs import models_logged

    with models_logged(sys.stderr):
        from octopus.train.evaluate import evaluate_policy

        result = evaluate_policy(
            options.model,
            count=options.questions,
            mode=options.mode,
            split=options.split,
            parts=options.parts,
            lost=options.lost,
            seed=options.seed,
            device=options.device,
        )
    print("\n".join(result.lines()))


def _report(options: argparse.Namespace) -> None:
    from octopus.train.report import final_table, speed

    print(final_table(options.folder))
    print(speed(options.folder))


def _export(options: argparse.Namespace) -> None:
    from octopus.train.export import export

    print(f"exported {export(options.source, options.out)} to {options.out}")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number at least 1, came {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, came {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, came {text!r}")
    return share


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
