"""Functions that reward, in TRL's signature.

    def exact(prompts, completions, completion_ids, answer, **columns):
        return [float(said == right) for said, right in zip(completions, answer)]

Each argument is a list with one entry a rollout; columns of the rows come as arguments of their names. What is returned
is one number a rollout, or None where the function does not apply. A function may be `async`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from octopus.core.errors import ConfigError, OctopusError

RewardFunction = Callable[..., Any]
PATIENCE_S = 600.0
"""How long the functions may take for the rollouts of a step, all together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What reward functions are given: one entry a rollout.

    Attributes:
        prompts: As the rows have them: texts, or lists of messages.
        completions: What was answered: texts, or lists of one message of the assistant, like the prompts.
        completion_ids: The token ids that the root sampled.
        columns: The rows' other columns.
    """

    prompts: list[Any]
    completions: list[Any]
    completion_ids: list[list[int]]
    columns: Mapping[str, list[Any]]

    def arguments(self) -> dict[str, Any]:
        """By name."""
        return {
            "prompts": self.prompts,
            "completions": self.completions,
            "completion_ids": self.completion_ids,
        } | dict(self.columns)


class Rewards:
    """Several functions, whose weighted results are added up.

    Attributes:
        names: Of the functions.
    """

    def __init__(
        self, functions: Sequence[RewardFunction], *, weights: Sequence[float] = (), time_s: float = PATIENCE_S
    ) -> None:
        """Takes functions.

        Args:
            functions: At least one.
            weights: One a function; none weighs all the same, 1.
            time_s: How long they may take for one call of `score`.

        Raises:
            ConfigError: there is no function, or the weights are not as many, or not finite.
        """
        if not functions:
            raise ConfigError("expected at least one reward function, came none")
        if weights and len(weights) != len(functions):
            raise ConfigError(f"expected a weight for each of {len(functions)} reward functions, came {len(weights)}")
        if not all(map(math.isfinite, weights)):
            raise ConfigError(f"expected weights that are finite numbers, came {list(weights)}")
        self.names = [getattr(function, "__name__", type(function).__name__) for function in functions]
        self._functions = list(functions)
        self._weights = list(weights) or [1.0] * len(functions)
        self._time_s = time_s

    def refuse_unfit(self, columns: Sequence[str]) -> None:
        """Raises ConfigError if a function cannot be called with these columns."""
        names = ["prompts", "completions", "completion_ids", *columns]
        for name, function in zip(self.names, self._functions, strict=True):
            try:
                inspect.signature(function).bind(**dict.fromkeys(names))
            except TypeError as error:
                raise ConfigError(
                    f"reward function {name} cannot be called with {', '.join(names)}: {error}; let it take **columns"
                ) from error

    def score(self, given: Given) -> list[list[float | None]]:
        """What each function gives each rollout: one list a rollout, one entry a function.

        Raises:
            OctopusError: A function returned something else than one finite number or None a rollout, or took too long.
        """
        count = len(given.completions)
        results = [
            _checked(name, returned, count) for name, returned in zip(self.names, self._call(given), strict=True)
        ]
        return [list(values) for values in zip(*results, strict=True)]

    def total(self, values: Sequence[float | None], *, rollout: str) -> float:
        """The weighted sum of what applies. Raises OctopusError if nothing does."""
        if all(value is None for value in values):
            raise OctopusError(
                f"no reward function applies to {rollout}: {', '.join(self.names)} returned None; one must say a number"
            )
        return sum(weight * value for weight, value in zip(self._weights, values, strict=True) if value is not None)

    def _call(self, given: Given) -> list[Any]:
        """Runs all functions on an event loop in a daemon thread: one that never returns cannot hold up the end."""

        async def one(function: RewardFunction) -> Any:
            returned = function(**given.arguments())
            return await returned if inspect.isawaitable(returned) else returned

        async def everyone() -> list[Any]:
            return await asyncio.gather(*map(one, self._functions))

        loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=(loop,), name="rewards", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(everyone(), loop)
        try:
            return future.result(timeout=self._time_s)
        except TimeoutError:
            if future.done():  # The functions' own.
                raise
            future.cancel()
            raise OctopusError(
                f"the reward functions {', '.join(self.names)} gave nothing within {self._time_s:g} s"
            ) from None
        finally:
            loop.call_soon_threadsafe(loop.stop)


def load_functions(names: Sequence[str]) -> list[RewardFunction]:
    """Functions by `module:function`; modules are looked for in the working directory too.

    Raises:
        ConfigError: There is no such module or function.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return [_load(name) for name in names]


def _load(name: str) -> RewardFunction:
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ConfigError(f"expected a reward function as 'module:function', came {name!r}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"reward function {name}: {error}; modules are looked for in {Path.cwd()} too") from error
    if not callable(found):
        raise ConfigError(f"reward function {name}: expected a function, came {type(found).__name__}")
    return found


def _checked(name: str, returned: object, count: int) -> list[float | None]:
    if not isinstance(returned, list | tuple) or len(returned) != count:
        came = f"{len(returned)}" if isinstance(returned, list | tuple) else type(returned).__name__
        raise OctopusError(f"reward function {name}: expected a list of {count}, one entry a rollout, came {came}")
    for number, value in enumerate(returned):
        if value is not None and not (isinstance(value, Real) and math.isfinite(value)):
            raise OctopusError(
                f"reward function {name}: entry {number}: expected a finite number or None, came {value!r:.60}"
            )
    return [None if value is None else float(value) for value in returned]


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
