"""`octopus-verify`: audits masks, positions, heads, gradients and traces, of Octopus and of anybody else.

Exit codes: 0 clean, 1 findings at or above the fail level, 2 wrong usage or unreadable input, 3 inconclusive (nothing
could be checked, or a check could not tell), 101 the auditor failed, 130 interrupted, 141 nobody reads the report any
more (`| head`), which shells say of every program to which that happens.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

from octopus.core.errors import BackendUnavailable, ConfigError, InvariantViolation, OctopusError
from octopus.verify.command.parser import build_parser
from octopus.verify.inputs import Unreadable

CLEAN, FINDINGS, USAGE, INCONCLUSIVE, INTERNAL, INTERRUPTED, UNREAD = 0, 1, 2, 3, 101, 130, 141

BUGS = (
    OctopusError, InvariantViolation, ArithmeticError, AssertionError, AttributeError, ImportError, LookupError,
    MemoryError, NameError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What can only be the auditor's own fault once the input has been read and judged."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Prints no traceback for what the user can mend."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = build_parser(given[0] if given else None).parse_args(given)
        command: Callable[..., int] = options.run
        code = command(options)
        sys.stdout.flush()
        return code
    except (Unreadable, ConfigError, BackendUnavailable) as error:
        print(f"octopus-verify: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Else Python complains of the same at its exit.
        return UNREAD
    except OSError as error:
        print(f"octopus-verify: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BUGS as error:
        traceback.print_exc()
        print(f"octopus-verify: OCT901 the auditor failed: {error!r}. Please report it", file=sys.stderr)
        return INTERNAL


if __name__ == "__main__":
    sys.exit(main())
