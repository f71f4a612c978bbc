"""The benchmark of page stores, on small sizes: it must run on as the store changes, and must not hide a rival."""

import shutil
from pathlib import Path

import pytest
import store
import store_cases
import store_octopus

SMALL = {
    "BATCHES": 2,
    "COUNTS": (1, 16, 256),
    "LEAVES": 1_000,
    "LINES": {"100-tokens": (100, 1), "1k-tokens-10-deep": (1_000, 10)},
    "PAGES": 4_096,
    "PREFIX": 256,
}


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (store, store_cases, store_octopus):
        for name, value in SMALL.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("_small")
def test_every_operation_of_ours_passes_its_gate_and_gets_a_figure() -> None:
    """Catches: a renamed primitive, a match or an eviction that no longer does its work, a case that is left out."""
    lines = store.octopus_figures()
    found = {(line["case"], line["metric"]) for line in [*lines, *store.headlines(lines)]}
    assert set(store.BOUNDS) <= found
    assert all(line["value"] > 0 for line in lines if line["case"] != "audit")


def line(case: str, variant: str, value: float, metric: str = "us") -> store.Line:
    return {"case": case, "variant": variant, "value": value, "metric": metric, "note": "", "versions": {}}


def test_a_headline_is_the_worst_of_its_lines() -> None:
    """Catches: the best or the last line taken for the whole."""
    lines = [line(f"fork/{name}", "octopus", value) for value, name in enumerate(store.LINES, 1)]
    lines += [line("fork/100-tokens", "rival", 7.0), line("append", "rival", 9.0)]
    found = {(head["case"], head["variant"]): head["value"] for head in store.headlines(lines[::-1])}
    assert found == {("fork", "octopus"): len(store.LINES), ("fork", "rival"): 7.0}


def test_a_bound_that_is_exceeded_is_said() -> None:
    """Catches: a comparison the wrong way round, or a rival's figure held against our bound."""
    values = {"octopus": 1.5, "rival": 0.5}
    results = [store.result(line("append", variant, value), "") for variant, value in values.items()]
    assert store.verdicts(results) == ["append: 1.5 us EXCEEDS the bound of 1"]


def test_a_missing_rival_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Catches: a rival that is skipped in silence, whether its environment or only its library is missing."""
    monkeypatch.setattr(store, "RIVALS_PYTHON", tmp_path / "bin" / "python")
    with pytest.raises(SystemExit, match="make bench-store"):
        store.rival_figures("vllm_blocks")
    failing = shutil.which("false")
    assert failing is not None
    monkeypatch.setattr(store, "RIVALS_PYTHON", Path(failing))
    with pytest.raises(SystemExit, match="no figures for vllm-BlockPool"):
        store.rival_figures("vllm_blocks")
