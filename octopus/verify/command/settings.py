"""What was asked for: options of the command line over `[tool.octopus.verify]` over defaults."""

from __future__ import annotations

import argparse
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from octopus.core.errors import ConfigError
from octopus.verify.findings import Severity
from octopus.verify.inputs import Hints

LEVELS = {level.word: level for level in Severity}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Keys of `[tool.octopus.verify]`, with `-` for `_`.

    Attributes:
        select: Prefixes of codes; none means all.
        ignore: Prefixes of codes to leave out.
        fail_level: `info`, `warning` or `error`.
        baseline: File of findings to leave out.
        format: How to report.
        max_findings: How many are printed.
        window: Declared sliding window.
        sinks: Declared attention sinks.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_level: str = "error"
    baseline: str | None = None
    format: str = "text"
    max_findings: int = 20
    window: int | None = None
    sinks: int = 0

    @property
    def level(self) -> Severity:
        """The severity from which on findings fail."""
        return LEVELS[self.fail_level]


TYPES: dict[str, type | tuple[type, ...]] = {
    "select": list, "ignore": list, "fail_level": str, "baseline": str, "format": str, "max_findings": int,
    "window": int, "sinks": int,
}  # fmt: skip


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of one run. Raises ConfigError."""
    settings = Settings() if options.isolated else read_settings(options.config)
    given = {
        field.name: getattr(options, field.name)
        for field in fields(Settings)
        if getattr(options, field.name, None) is not None
    }
    for name in ("select", "ignore"):
        if name in given:
            given[name] = tuple(given[name])
    return checked(replace(settings, **given), "the command line")


def read_settings(path: Path | None) -> Settings:
    """Settings from a file, from the nearest `pyproject.toml`, or the defaults. Raises ConfigError."""
    found = path or _nearest_pyproject(Path.cwd())
    if found is None:
        return Settings()
    try:
        table: Any = tomllib.loads(found.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{found}: {error}") from error
    for key in ("tool", "octopus", "verify"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{found}: {key} must be a table")
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in TYPES or "_" in key:
            known = ", ".join(sorted(name.replace("_", "-") for name in TYPES))
            raise ConfigError(f"{found}: unknown key {key!r} in [tool.octopus.verify]; known are {known}")
        if not isinstance(value, TYPES[name]) or isinstance(value, bool):
            raise ConfigError(f"{found}: {key} is {value!r}, expected {getattr(TYPES[name], '__name__', 'a value')}")
        values[name] = tuple(map(str, value)) if isinstance(value, list) else value
    return checked(replace(Settings(), **values), str(found))


def checked(settings: Settings, source: str) -> Settings:
    """The settings, if their values are known ones. Raises ConfigError."""
    from octopus.verify.command.formats import FORMATS
    from octopus.verify.rules import rules

    if settings.fail_level not in LEVELS:
        raise ConfigError(f"{source}: fail-level is {settings.fail_level!r}, expected one of {', '.join(LEVELS)}")
    if settings.format not in FORMATS:
        raise ConfigError(f"{source}: format is {settings.format!r}, expected one of {', '.join(FORMATS)}")
    if settings.max_findings < 0:
        raise ConfigError(f"{source}: max-findings is {settings.max_findings}, expected 0 or more")
    if settings.window is not None and settings.window < 1:
        raise ConfigError(f"{source}: window is {settings.window}, expected 1 or more")
    if settings.sinks < 0:
        raise ConfigError(f"{source}: sinks is {settings.sinks}, expected 0 or more")
    for prefix in (*settings.select, *settings.ignore):
        if not any(code.startswith(prefix) for code in rules()):
            raise ConfigError(f"{source}: no code begins with {prefix!r}; `octopus-verify rules` lists them")
    return settings


def hints_of(options: argparse.Namespace, settings: Settings) -> Hints:
    """What the readers are told."""
    return Hints(
        convention=options.mask_convention,
        allow_pt=options.allow_pt,
        max_bytes=options.max_bytes,
        format=options.format_in,
        window=settings.window,
        sinks=settings.sinks,
        varies_by_head=options.heads_differ,
    )


def _nearest_pyproject(folder: Path) -> Path | None:
    for place in (folder, *folder.parents):
        if (found := place / "pyproject.toml").is_file():
            return found
    return None
