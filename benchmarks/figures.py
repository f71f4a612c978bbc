"""Figures as JSON lines, and gates that must hold."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import torch
import transformers


class Figures:
    """Prints one JSON object a figure.

    Attributes:
        device: Its name.
        red: The gates that do not hold, in words.
    """

    def __init__(self, benchmark: str, device: str, command: str) -> None:
        self.red: list[str] = []
        self.device = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        self._common = {
            "device": self.device,
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "date": datetime.now(UTC).date().isoformat(),
            "command": command,
        }
        self._benchmark = benchmark

    def say(self, case: str, metric: str, value: float | str, unit: str, *, variant: str = "octopus") -> None:
        """Prints one figure."""
        named = {"benchmark": self._benchmark, "case": case, "variant": variant}
        print(json.dumps(named | {"metric": metric, "value": value, "unit": unit} | self._common), flush=True)

    def gate(self, case: str, name: str, holds: bool, why: object = "") -> None:
        """Prints whether a gate holds, and remembers it if not."""
        self.say(case, f"gate: {name}", int(holds), "1 = holds")
        if not holds:
            self.red.append(f"{case}: {name}: {why}")
