"""The functional audits one by one: what each finds, and when each says that it cannot tell.

Catches a pass that nobody earned: no control, a stack that differs from itself, attention that cannot be asked.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from octopus.verify.audits import Inconclusive
from octopus.verify.findings import Outcome, Verdict
from octopus.verify.functional import command
from octopus.verify.functional.audits import gradient_stages, isolation_stages
from octopus.verify.functional.differences import (
    additivity,
    layout_change,
    packed_against_alone,
    sibling_order,
)
from octopus.verify.functional.isolation import causality, determinism, segment_swap
from octopus.verify.functional.kernel import kernel_calls, wrapped_attention
from octopus.verify.functional.poison import finite_poison, not_finite_poison
from octopus.verify.functional.stack import Stack, embedding_gradient, record
from octopus.verify.functional.trial import Trial
from octopus.verify.inputs import Unreadable
from octopus.verify.selftest.bench import Bench
from octopus.verify.selftest.fault import FOREIGN, LLAMA, Fault
from octopus.verify.subject import Descent, Subject

TWO_DOCUMENTS = Subject(name="two", length=6, descent=Descent(documents_T=np.array([0, 0, 0, 1, 1, 1])))


def black_box(run, subject: Subject = TWO_DOCUMENTS) -> Trial:
    """A stack of which nothing is known but what it gives: logits over 8 tokens."""
    return Trial(stack=Stack(name="box", model=None, run=run, tokens_T=torch.arange(6)), subject=subject)


def by_document(tokens_T):
    one_hot_TV = torch.nn.functional.one_hot(tokens_T, 8).double()
    return torch.cat([one_hot_TV[:3].cumsum(0), one_hot_TV[3:].cumsum(0)])


def over_the_row(tokens_T):
    return torch.nn.functional.one_hot(tokens_T, 8).double().cumsum(0)


def test_a_black_box_is_audited_by_what_it_gives() -> None:
    assert segment_swap(black_box(by_document)) == causality(black_box(by_document)) == []
    (found,) = causality(black_box(over_the_row))
    assert (found.code, found.witness.query, found.witness.key) == ("OCT505", 3, 0)
    assert "the logits" in found.message and found.location.layer is None
    assert [found.code for found in segment_swap(black_box(over_the_row))] == ["OCT501"]


def test_without_a_control_nothing_is_certified() -> None:
    deaf = black_box(lambda tokens_T: torch.zeros(6, 8))
    for audit in (segment_swap, causality):
        with pytest.raises(Inconclusive, match="vacuous"):
            audit(deaf)
    reports = {stage.name: stage.report() for stage in isolation_stages(deaf)}
    assert reports["causality"].verdict() is Verdict.INCONCLUSIVE
    assert reports["finite poison"].checks[0].outcome is Outcome.INCONCLUSIVE


def test_a_stack_that_differs_from_itself_cannot_be_certified() -> None:
    restless = black_box(lambda tokens_T: by_document(tokens_T) + torch.rand(6, 8))
    with pytest.raises(Inconclusive, match="cannot certify"):
        causality(restless)
    assert [found.code for found in determinism(restless)] == ["OCT509"]
    assert determinism(black_box(by_document)) == []


def test_without_a_descent_nothing_is_certified() -> None:
    with pytest.raises(Inconclusive, match="no well-formed descent"):
        causality(black_box(by_document, Subject(name="unknown", length=6)))


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="one row of 6 tokens"):
        record(black_box(lambda tokens_T: torch.zeros(5, 8)).stack)
    with pytest.raises(Inconclusive, match="no embedding table"):
        embedding_gradient(record(black_box(by_document).stack), torch.zeros(()))


def planted(bench: Bench, fault: Fault | None = None, dtype: torch.dtype = torch.float32):
    return bench.planted(fault, dtype)


def trial_of(bench: Bench, found) -> Trial:
    return Trial(stack=found.stack, subject=bench.episode.subject(bench.name))


def test_eager_attention_cannot_be_wrapped() -> None:
    bench = Bench(name=FOREIGN)
    with planted(bench) as found:
        found.model.config._attn_implementation = "eager"
        with pytest.raises(Inconclusive, match="cannot be wrapped"):
            kernel_calls(found.stack)


def test_wrappers_nest_and_leave_nothing_behind() -> None:
    bench, order = Bench(name=FOREIGN), []

    def wrapper(name):
        def wrap(function):
            def wrapped(*args, **settings):
                order.append(name)
                return function(*args, **settings)

            return wrapped

        return wrap

    before = ALL_ATTENTION_FUNCTIONS["sdpa"]
    with planted(bench) as found:
        with (
            wrapped_attention(found.model, wrapper("inner")),
            wrapped_attention(found.model, wrapper("outer")),
        ):
            found.stack.run(found.stack.tokens_T)
        assert order == ["outer", "inner"] * 2
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is before


def weak_mask(function):
    """Adds a number that hides a key from anything sensible, and from nothing large."""

    def wrapped(module, q, k, v, mask, **settings):
        weak = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -100.0)
        return function(module, q, k, v, weak, **settings)

    return wrapped


def test_poison_finds_a_mask_that_well_behaved_numbers_do_not() -> None:
    bench = Bench(name=FOREIGN)
    fault = Fault(name="weak", code="OCT502", about="", kernel=weak_mask)
    with planted(bench, fault) as found:
        trial = trial_of(bench, found)
        assert segment_swap(trial) == []
        assert {finding.code for finding in finite_poison(trial)} == {"OCT502"}


def test_nan_poison_spares_our_kernels_and_not_a_dense_one() -> None:
    bench = Bench(name=LLAMA)
    with planted(bench) as found:
        assert not_finite_poison(trial_of(bench, found)) == []
    bench = Bench(name=FOREIGN)
    with planted(bench) as found:
        assert {finding.code for finding in not_finite_poison(trial_of(bench, found))} == {"OCT503"}


def test_the_first_layer_that_differs_is_named() -> None:
    bench = Bench(name=LLAMA)

    def hook(module, args, output):
        return output + 0.1 * output.roll(1, dims=1)

    with planted(bench) as found:
        handle = found.model.model.layers[1].register_forward_hook(hook)
        layers = {finding.location.layer for finding in causality(trial_of(bench, found))}
        handle.remove()
    assert layers == {1}


def test_gradients_that_do_not_add_up_are_found() -> None:
    bench, seen = Bench(name=FOREIGN), []

    def every_other_backward_doubled(function):
        def wrapped(module, q, k, v, mask, **settings):
            seen.append(1)
            return function(module, q, k, v * 2 - v.detach() if len(seen) % 4 == 1 else v, mask, **settings)

        return wrapped

    fault = Fault(name="restless", code="OCT407", about="", kernel=every_other_backward_doubled)
    with planted(bench, fault) as found:
        assert [f.code for f in additivity(trial_of(bench, found), found.loss, bench.yardstick)] == ["OCT407"]
    with planted(bench) as found:
        assert additivity(trial_of(bench, found), found.loss, bench.yardstick) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_layout_that_matters_is_found(dtype: torch.dtype) -> None:
    bench = Bench(name=LLAMA)
    one, other, rows_T, loss = bench.relaid(dtype)
    assert not np.array_equal(rows_T, np.arange(len(rows_T)))
    assert layout_change(one, other, rows_T, bench.yardstick) == []
    assert sibling_order(one, other, rows_T, loss, bench.yardstick) == []

    def uneven(tokens_T):
        return one.stack.run(tokens_T) * torch.linspace(1, 2, len(tokens_T))[:, None]

    wrong = Trial(stack=replace(one.stack, run=uneven), subject=one.subject)
    assert [found.code for found in layout_change(wrong, other, rows_T, bench.yardstick)] == ["OCT508"]
    found = sibling_order(wrong, other, rows_T, loss, bench.yardstick)
    assert [finding.code for finding in found] == ["OCT406"]


def test_a_black_box_has_no_gradients_to_compare() -> None:
    bench = Bench(name=LLAMA)
    with planted(bench) as found:
        box = Trial(stack=replace(found.stack, model=None), subject=TWO_DOCUMENTS)
        with pytest.raises(Inconclusive, match="black box"):
            packed_against_alone(box, found.loss, bench.yardstick)


def parsed(name: str, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.configure(parser, name)
    return parser.parse_args(words)


def documents() -> Trial:
    """Called by name below."""
    return black_box(by_document)


def leaking() -> Trial:
    """Called by name below."""
    return black_box(over_the_row)


def our_gradients():
    """Called by name below."""
    bench = Bench(name=FOREIGN)
    with planted(bench) as found:
        return trial_of(bench, found), found.loss, bench.yardstick


def test_the_commands_audit_what_a_function_returns() -> None:
    assert command.run(parsed("isolate", "--call", f"{__name__}:documents"), "isolate").findings == ()
    found = command.run(parsed("isolate", "--call", f"{__name__}:leaking"), "isolate").findings
    assert {finding.code for finding in found} == {"OCT501", "OCT505"}
    assert (
        command.run(parsed("grad", "--call", f"{__name__}:our_gradients"), "grad").verdict() is Verdict.PASS
    )
    for words in (f"{__name__}:nothing", "no.such:module", f"{__name__}:Bench", f"{__name__}:our_gradients"):
        with pytest.raises(Unreadable):
            command.run(parsed("isolate", "--call", words), "isolate")


def test_the_commands_audit_our_stack() -> None:
    assert command.run(parsed("isolate", "--family", "qwen3.5"), "isolate").verdict() is Verdict.PASS
    assert command.run(parsed("grad", "--dtype", "bfloat16"), "grad").verdict() is Verdict.PASS


def test_all_gradient_audits_are_asked() -> None:
    bench = Bench(name=LLAMA)
    with planted(bench) as found:
        names = [stage.name for stage in gradient_stages(trial_of(bench, found), found.loss, bench.yardstick)]
    assert names == ["gradient isolation", "packed against alone", "additivity"]
