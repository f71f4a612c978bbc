"""The benchmark of attention: its shapes, its rivals' masks, its gate, its line and its picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import attention_gate
import attention_picture
import attention_rivals as rivals
import numpy as np
import pytest
import torch
from attention_cases import plan_of, without_shifts
from attention_gate import by_backend, by_rows, draw, errors, in_float64
from attention_timing import Line
from numeric import causal_plan, random_plan

from octopus.attention.exports import dense_view
from octopus.attention.reference import attend_reference
from octopus.attention.windowed import windowed

SMALL = {"paper-143k": 128, "ragged-143k": 128, "wide": 16, "deep": 32}
"""Scales at which a dense mask is small."""


def test_the_ragged_shape_has_its_sizes() -> None:
    """Catches: branches drawn anew, a sum that is not that of `paper-143k`, two mounts that share a shift."""
    plan = plan_of("ragged-143k")
    assert (plan.length, plan.pairs) == (143_360, 5_192_162_452)
    shifts = [s.shift for s in plan.slices if s.shift]
    assert len(shifts) == len(set(shifts)) > 12


@pytest.mark.parametrize(("shape", "scale"), SMALL.items())
def test_flex_attention_is_given_the_plan_s_mask(shape: str, scale: int) -> None:
    """Catches: a rival that computes less than we do. A block too few in its lists would never be looked at."""
    plan = without_shifts(plan_of(shape, scale))
    assert rivals.hidden_pairs_wrong(plan) == 0
    side = -(-plan.length // rivals.BLOCK)
    padded = np.zeros((side * rivals.BLOCK, side * rivals.BLOCK), dtype=bool)
    padded[: plan.length, : plan.length] = dense_view(plan)[0]
    blocks = padded.reshape(side, rivals.BLOCK, side, rivals.BLOCK)
    seen, whole = rivals._blocks(plan)
    np.testing.assert_array_equal(seen.numpy(), blocks.any((1, 3)))
    np.testing.assert_array_equal(whole.numpy(), blocks.all((1, 3)))


def test_a_wrong_mask_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the test above: a mount that shows one token less."""
    plan = without_shifts(plan_of("paper-143k", 128))
    mount = next(s for s in plan.slices if not s.causal and s.k1 != s.q0)
    less = replace(plan, slices=tuple(replace(s, k1=s.k1 - 1) if s is mount else s for s in plan.slices))
    honest = rivals.block_mask
    monkeypatch.setattr(rivals, "block_mask", lambda plan, device: honest(less, device))
    assert rivals.hidden_pairs_wrong(plan) == mount.q1 - mount.q0


def test_the_gate_s_float64_is_the_reference() -> None:
    """Catches: a gate that compares with something else than the specification, in outputs, LSE or a gradient."""
    paper, blind = plan_of("paper-143k", 2_048), random_plan(2, segments=9, longest=9)
    assert not dense_view(blind)[0].any(1).all()
    plans = {"shifts": paper, "window": windowed(paper, 9), "rows that see nothing": blind, "row": causal_plan(15)}
    for name, plan in plans.items():
        data = draw(plan, 64, 4, "cpu", rotated=True, dtype=torch.float64)
        leaves = [x.detach().requires_grad_() for x in data.inputs[:3]]
        out, lse = attend_reference(*leaves, plan=plan, rope=data.rope, scale=data.scale)
        gradients = torch.autograd.grad(out, leaves, data.inputs[3], materialize_grads=True)
        for found, expected in zip(in_float64(data), (out.detach(), *gradients, lse), strict=True):
            assert torch.allclose(found, expected, rtol=0, atol=1e-11), name


@pytest.mark.parametrize("shape", SMALL)
def test_rows_of_text_are_the_same_attention(shape: str) -> None:
    """Catches: a baseline whose errors are those of another problem, which every backend would pass."""
    data = draw(plan_of(shape, 8 * SMALL[shape]), 64, 4, "cpu", rotated=True, dtype=torch.float64)
    for found, expected in zip(by_rows(data), in_float64(data)[:4], strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_the_gate_holds_for_ours_and_for_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a gate that lets a lost shift or a forgotten window pass."""
    whole = plan_of("paper-143k", 1_024)
    near = windowed(whole, 30)
    faults = {"shifts lost": (whole, without_shifts(whole)), "window forgotten": (near, whole)}
    for name, (plan, fault) in faults.items():
        data = draw(plan, 64, 4, "cpu", rotated=True, dtype=torch.float32)
        assert errors(name, data, "sliced").holds, name
        with monkeypatch.context() as patched:
            patched.setattr(attention_gate, "by_backend", lambda data, backend, fault=fault: by_backend(
                replace(data, plan=fault), backend
            ))  # fmt: skip
            assert not errors(name, data, "sliced").holds, name


@pytest.mark.parametrize(
    ("x", "y", "line"),
    [
        ([1.0, 2.0, 4.0], [5.0, 7.0, 11.0], (3.0, 2.0, 1.0)),
        ([0.0, 1.0, 2.0], [0.0, 3.0, 0.0], (1.0, 0.0, 0.0)),
        ([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 1.0, 2.0], (0.1, 0.6, 0.9)),
    ],
    ids=["exact", "no line at all", "by hand"],
)
def test_the_line_is_the_least_squares_line(
    x: Sequence[float], y: Sequence[float], line: tuple[float, float, float]
) -> None:
    """Catches: axes exchanged, a line forced through 0, an R^2 of squares about 0 instead of about the mean."""
    found = Line.through(x, y)
    assert (found.start, found.slope, found.fit) == pytest.approx(line, abs=1e-12)
    assert found.at(10) == pytest.approx(line[0] + 10 * line[1])


RATES = [
    ("paper-143k/d256", "octopus-cudnn", 510.0, 430.0),
    ("paper-143k/d256", "flex-attention", 220.0, 95.0),
    ("wide/d128", "octopus-sliced-fa4", 300.0, 200.0),
]


def lines_of_a_run() -> list[dict[str, object]]:
    """Figures as `attention.py` prints them: 3 ms and 2 ms a billion pairs, rows at four times that."""
    found: list[dict[str, object]] = []

    def say(case: str, variant: str, metric: str, value: float | str) -> None:
        line = {"case": case, "variant": variant, "metric": metric, "value": value, "unit": ""}
        found.append({"benchmark": "attention", "device": "Card X", **line})

    say("ceiling", "torch", "matmul_tflops", 790.0)
    for case, variant, forward, backward in RATES:
        say(case, variant, "forward_tflops", forward)
        say(case, variant, "backward_tflops", backward)
    say("paper-143k/d128", "flex-attention", "forward_ms", "no valid configuration")
    for branches, kind in ((1, "equal"), (8, "equal"), (64, "equal"), (8, "skewed")):
        case = f"scaling/{kind}/B{branches}/E{branches}"
        say(case, "octopus-cudnn", "forward_ms", 1.0)
        say(case, "octopus-cudnn", "backward_ms", 2.0 + 2.0 * branches)
        say(case, "octopus-cudnn", "forward_tflops", 1.0)
        say(case, "plan", "pairs", branches * 10**9)
        if kind == "equal" and branches > 1:
            say(case, "rows-sdpa-cudnn", "total_ms", 4 * (3.0 + 2.0 * branches))
    return found


def written(folder: Path, lines: Sequence[dict[str, object]]) -> Path:
    path = folder / "attention.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def drawn(folder: Path, monkeypatch: pytest.MonkeyPatch, lines: Sequence[dict[str, object]]) -> str:
    monkeypatch.setattr("sys.argv", ["attention_picture", str(written(folder, lines)), str(folder / "picture.svg")])
    assert attention_picture.main() == 0
    return (folder / "picture.svg").read_text()


def test_the_picture_shows_every_figure_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a point or a label left out, words drawn as numbers, a picture that differs from run to run."""
    lines = lines_of_a_run()
    stale = {**lines[0], "value": 100.0}  # An earlier run of the same file.
    picture = drawn(tmp_path, monkeypatch, [stale, *lines])
    assert drawn(tmp_path, monkeypatch, lines) == picture
    groups = {element.get("id"): element for element in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}g")}
    points = {name: len(list(groups[name].iter("{http://www.w3.org/2000/svg}use"))) for name in (
        "equal", "skewed", "rows", "forward", "backward",
    )}  # fmt: skip
    assert points == {"equal": 3, "skewed": 1, "rows": 2, "forward": 3, "backward": 3}
    for text in ("3.00 ms + 2.00 ms a billion pairs, R² 1.000", "matrix product, 790 TFLOP/s", "on Card X"):
        assert text in picture
    for case, variant, *_ in RATES:
        assert f"{case}  {variant}" in picture


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (lambda line: line["case"] != "ceiling", "there is no matmul_tflops of ceiling, torch: run attention.py with"),
        (lambda line: line["variant"] != "plan", "there is no pairs of scaling/equal/B1/E1, plan: run attention.py"),
        (lambda line: "scaling" not in str(line["case"]), "two scaling runs or more, not 0"),
        (lambda line: False, "it holds no figures of attention.py"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, keep: Callable[..., bool], message: str) -> None:
    """Catches: half a picture drawn in silence."""
    path = written(tmp_path, [line for line in lines_of_a_run() if keep(line)])
    with pytest.raises(ValueError, match=message):
        attention_picture.draw(attention_picture.Measured.read(path))


def test_two_devices_are_not_mixed(tmp_path: Path) -> None:
    """Catches: a rehearsal on the CPU drawn beside a card's figures."""
    lines = lines_of_a_run()
    path = written(tmp_path, [*lines, {**lines[-1], "device": "CPU"}])
    with pytest.raises(ValueError, match="from one device; it holds CPU, Card X"):
        attention_picture.Measured.read(path)
