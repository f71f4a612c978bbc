"""Figures as JSON lines, gates that must hold, and bounds that must be kept."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch
import transformers


class Figures:
    """Prints one JSON object a figure, and appends it to a file if there is one.

    Attributes:
        device: Its name.
        red: The gates and bounds that do not hold, in words.
    """

    def __init__(self, benchmark: str, device: str, command: str, path: str | None = None) -> None:
        self.red: list[str] = []
        self.device = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        self._common = {
            "device": self.device,
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "date": datetime.now(UTC).date().isoformat(),
            "command": command,
        }
        self._benchmark = benchmark
        self._path = path

    def say(
        self, case: str, metric: str, value: float | str, unit: str, *, variant: str = "octopus", note: str = ""
    ) -> None:
        """Prints one figure."""
        named = {"benchmark": self._benchmark, "case": case, "variant": variant}
        line = named | {"metric": metric, "value": value, "unit": unit} | ({"note": note} if note else {})
        text = json.dumps(line | self._common)
        print(text, flush=True)
        if self._path:
            with Path(self._path).open("a") as file:
                file.write(text + "\n")

    def gate(self, case: str, name: str, holds: bool, why: object = "") -> None:
        """Prints whether a gate holds, and remembers it if not."""
        self.say(case, f"gate: {name}", int(holds), "1 = holds", note=str(why))
        if not holds:
            self.red.append(f"{case}: {name}: {why}")

    def bound(
        self,
        case: str,
        metric: str,
        value: float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        variant: str = "octopus",
    ) -> None:
        """Prints a figure with what it must keep to, and remembers it if it does not."""
        limit = f"at most {at_most}" if at_most is not None else f"at least {at_least}"
        holds = value <= at_most if at_most is not None else value >= (at_least or 0)
        note = f"{limit}: {'holds' if holds else 'DOES NOT HOLD'}"
        self.say(case, metric, round(value, 4), unit, variant=variant, note=note)
        if not holds:
            self.red.append(f"{case}: {metric} is {value:.4g} {unit}, must be {limit}")


def command_line() -> str:
    """How the script was called; of an absolute path only its name."""
    return " ".join(["python", *(Path(word).name if word.startswith("/") else word for word in sys.argv)])
