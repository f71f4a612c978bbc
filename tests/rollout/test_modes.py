"""What each mode makes of one environment, and that scripts play it as the loop does.

Catches: a script that writes other tokens, positions, mounts or waits than the loop would have forced; a token sampled
right after a mount; a span that is not the committed name; children that search one after the other; text mode that
mounts, or tokenises again; rewinds and reads that leave the wrong tokens live or visible.
"""

import asyncio
import time

import pytest
import torch
from toy_job import QUESTION, Box, PolicyEngine, box, codec, following, play, question, say, script_of

from octopus.core.ancestry import path_tokens
from octopus.core.cursor import Cursor
from octopus.core.visibility import view
from octopus.rollout.codec import Control
from octopus.rollout.episode import Branch
from octopus.rollout.modes import MODES
from octopus.rollout.records import RolloutRecord, as_json
from octopus.rollout.scripted import play_script
from octopus.rollout.tools import Tool

YES = say(Control.ANSWER, "yes")
EVERY_MODE = pytest.mark.parametrize("mode", list(MODES))


@EVERY_MODE
def test_a_script_writes_what_the_loop_writes(mode: str) -> None:
    script = play_script("toy/0", question(), codec(), mode)
    engine = PolicyEngine(following(script_of(script)))
    (record,) = play(engine, question(), mode)
    lines = [as_json(one) for one in (script, record)]
    assert all(value < 0 for _, _, value, _ in lines[1]["sampled"])
    for line in lines:
        line["sampled"] = [(segment, offset, live) for segment, offset, _, live in line["sampled"]]
    assert lines[0] == lines[1]
    assert record.outcome == "answered" and record.answer == QUESTION.answer and record.correct


def test_what_octopus_mode_forces() -> None:
    record = play_script("toy", question(), codec(), "octopus")
    _, *children, first, second, last = record.episode.segments
    spelled = [codec().decode(segment.tokens) for segment in record.episode.segments]
    assert spelled == [
        "<|question|><|part|>1 snow white<|part|>2 fire oven<|part|>3 quiet sky<|end|><|fork|>3<|end|>",
        "<|child|>1<|end|><|search|> snow white<|end|><|result|>snow.fall : white snow falls on the cold hill<|end|>"
        "<|commit|>snow.fall<|end|>",
        "<|child|>2<|end|><|search|> fire oven<|end|><|result|>Oven_2 : red fire burns in the oven<|end|>"
        "<|commit|>Oven_2<|end|>",
        "<|child|>3<|end|><|search|> quiet sky<|end|><|result|>sea : blue sky over the quiet sea<|end|>"
        "<|commit|>sea<|end|>",
        "<|result|>",
        "<|result|>",
        "<|result|><|end|><|answer|>snow.fall, Oven_2, sea<|end|>",
    ]
    for child, reader, name in zip(children, (first, second, last), ("snow.fall", "Oven_2", "sea"), strict=True):
        (mount,) = reader.mounts
        (part,) = mount.parts
        assert part.segment is child
        assert codec().decode(child.tokens[part.start : part.stop]) == name
    seen = sum(part.stop - part.start for part in view(Cursor(last, len(last.tokens))))
    assert last.start_position + len(last.tokens) == seen  # positions 0..n-1, each once


@EVERY_MODE
def test_given_tokens_are_not_sampled(mode: str) -> None:
    """Every token that a policy would not have to choose is given: prompts, child openings, results, delimiters."""
    record = play_script("toy", question(), codec(), mode)
    script = script_of(record)
    parts, names = QUESTION.parts, QUESTION.answer.split(", ")
    searches = [say(Control.SEARCH, f" {part}") for part in parts]
    final = [int(Control.ANSWER)]
    for name in names:
        final += [*(codec().encode_text(", ") if len(final) > 1 else []), *codec().encode_text(name)]
    final.append(int(Control.END))
    if mode == "single":
        assert script == {(0,): [*searches[0], *searches[1], *searches[2], *final]}
    else:
        children = {
            (0, index): [*searches[index], *say(Control.COMMIT, name)] for index, name in enumerate(names)
        }
        assert script == {(0,): [*say(Control.FORK, "3"), *final], **children}
    for token in record.episode.sampled:
        assert token.offset > 0 or not token.segment.mounts


def test_text_mode_copies_the_committed_ids_and_mounts_nothing() -> None:
    """Catches: committed text that is decoded and encoded again, here ids that no encoder would choose."""
    odd = [codec().encode_text(letter)[0] for letter in "snow"]
    assert odd != codec().encode_text("snow")
    script = {
        (0,): [*say(Control.FORK, "1"), *YES],
        (0, 0): [int(Control.COMMIT), *odd, int(Control.END)],
    }
    (record,) = play(PolicyEngine(following(script)), box(str_tool), "text")
    root = record.episode.segments[0]
    assert not any(segment.mounts for segment in record.episode.segments)
    assert codec().decode(root.tokens).endswith("<|fork|>1<|end|>snow<|result|><|end|><|answer|>yes<|end|>")
    assert any(root.tokens[start : start + 4] == odd for start in range(len(root.tokens)))
    assert record.episode.segments[1].parent is None


def str_tool(text: str) -> str:
    return "found " + text


def test_children_search_at_the_same_time_and_nobody_else_stands_still() -> None:
    """Catches: tools called one after the other, and a loop that waits for tools while somebody could go on."""

    async def slow(text: str) -> str:
        await asyncio.sleep(0.2)
        return text

    long = say(Control.COMMIT, "yes " * 20)
    script = {
        (0,): [*say(Control.FORK, "3"), *YES],
        (0, 0): [*say(Control.SEARCH, "a"), *say(Control.COMMIT, "a")],
        (0, 1): [*say(Control.SEARCH, "b"), *say(Control.COMMIT, "b")],
        (0, 2): long,
    }
    engine = PolicyEngine(following(script))
    play(engine, box(slow))  # warms up
    engine.chosen.clear()
    began = time.monotonic()
    (record,) = play(engine, box(slow))
    waited = 0.2 + 0.15
    assert record.correct
    assert time.monotonic() - began < waited + 0.02 * len(engine.chosen)
    first_search = engine.chosen.index(3)
    assert engine.chosen[first_search : first_search + 3] == [3, 3, 3]
    assert 1 in engine.chosen[first_search:][: len(long)]  # The third goes on alone while the others wait.


def test_a_thread_that_reads_a_sibling_waits_for_it_and_sees_what_it_committed() -> None:
    script = {
        (0,): [*say(Control.FORK, "2"), *YES],
        (0, 0): [*say(Control.READ, "2"), *say(Control.COMMIT, "yes")],
        (0, 1): [*say(Control.SEARCH, "a"), *say(Control.COMMIT, "snow")],
    }
    (record,) = play(PolicyEngine(following(script)), box(str_tool))
    reader = next(s for s in record.episode.segments if s.mounts and s.writer == record.episode.branches[0].thread)
    (part,) = reader.mounts[0].parts
    assert codec().decode(part.segment.tokens[part.start : part.stop]) == "snow"
    assert codec().decode(reader.tokens) == "<|result|><|end|><|commit|>yes<|end|>"
    assert [branch.committed for branch in record.episode.branches] == ["yes", "snow"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (say(Control.READ, "1"), "that thread waits for this one"),
        (say(Control.READ, "5"), "there are threads 1 to 2 to read"),
        (say(Control.FORK, "2"), "this thread may not fork"),
        (say(Control.FORK, "\u0663"), "fork takes a number from 1 to 8"),
        (say(Control.REWIND, "1"), "rewind takes a number from 1 to 0"),
        (say(Control.OPEN, "a"), "there is no tool open now"),
    ],
)
def test_what_cannot_be_done_is_answered_in_words(said: list[int], expected: str) -> None:
    """Catches: a refusal of the graph that ends an episode."""
    script = {
        (0,): [*say(Control.FORK, "2"), *YES],
        (0, 0): [*said, *say(Control.COMMIT, "a")],
        (0, 1): [*say(Control.READ, "1"), *say(Control.COMMIT, "b")],
    }
    (record,) = play(PolicyEngine(following(script)), box(str_tool))
    assert record.outcome == "answered"
    assert [event.result for event in record.events[1] if not event.ok] == [expected]


def test_a_rewind_takes_turns_back_and_their_tokens_carry_no_loss() -> None:
    script = {
        (0,): [*say(Control.SEARCH, "a"), *say(Control.SEARCH, "b"), *say(Control.REWIND, "1"), *YES],
    }
    engine = PolicyEngine(following(script), dtype=torch.float64)
    (record,) = play(engine, box(str_tool), "single")
    sampled = record.episode.sampled
    dead = [token.segment.tokens[token.offset] for token in sampled if not token.live]
    assert dead == [*say(Control.SEARCH, "b"), *say(Control.REWIND, "1")]
    last = record.episode.segments[-1]
    path = path_tokens(Cursor(last, len(last.tokens)))
    assert codec().decode(path).endswith("<|search|>a<|end|><|result|>found a<|end|><|answer|>yes<|end|>")
    assert record.correct and record.episode.branches == ()


def test_a_fork_is_not_taken_back() -> None:
    script = {
        (0,): [*say(Control.FORK, "1"), *say(Control.REWIND, "1"), *YES],
        (0, 0): say(Control.COMMIT, "a"),
    }
    (record,) = play(PolicyEngine(following(script)), box(str_tool))
    assert [event.result for event in record.events[0] if not event.ok] == ["a fork is not taken back"]


def test_rollouts_of_a_task_share_their_prompt() -> None:
    """Catches: a prompt that is computed, or packed, once for each rollout of its group."""
    script = play_script("toy", question(), codec(), "octopus")
    engine = PolicyEngine(following(script_of(script)))
    records = play(engine, question(), seeds=(5, 6, 7))
    prompts = {record.episode.segments[0] for record in records}
    assert len(prompts) == 1 and [record.seed for record in records] == [5, 6, 7]
    assert prompts.pop().tokens == question().prompt(codec())
    assert all(record.correct for record in records)


def test_branches_say_who_found_what() -> None:
    record = play_script("toy", question(), codec(), "octopus")
    threads = [segment.writer for segment in record.episode.segments[1:4]]
    names = QUESTION.answer.split(", ")
    found = enumerate(zip(threads, QUESTION.gold, names, strict=True))
    assert record.episode.branches == tuple(
        Branch(thread=thread, place=(0, child), documents=(document,), committed=name)
        for child, (thread, document, name) in found
    )
    assert record.gold == QUESTION.gold and record.documents == ()


def test_a_set_of_tools_may_change_between_turns() -> None:
    tool = Tool(str_tool)
    changing = Box(lambda turn: {"open": tool} if turn else {"search": tool})
    script = {(0,): [*say(Control.SEARCH, "a"), *say(Control.OPEN, "b"), *say(Control.SEARCH, "c"), *YES]}
    (record,) = play(PolicyEngine(following(script)), changing, "single")
    assert [(event.kind, event.ok) for event in record.events[0]] == [
        ("search", True),
        ("open", True),
        ("search", False),
        ("answer", True),
    ]


@EVERY_MODE
def test_a_patient_script_searches_again_and_the_other_gives_up(mode: str) -> None:
    """Catches: a part that is given up in silence, so that the names after it move up."""
    half = question(lost=0.5)
    patient, other = (play_script("toy", half, codec(), mode, patient=patient) for patient in (True, False))
    assert patient.correct and patient.answer == QUESTION.answer
    names = zip((other.answer or "").split(", "), QUESTION.answer.split(", "), strict=True)
    assert {name == right or name == "unknown" for name, right in names} == {True}
    assert "unknown" in (other.answer or "")

    def searches(record: RolloutRecord) -> int:
        return sum(event.kind == "search" for events in record.events for event in events)

    assert searches(patient) > searches(other) == len(QUESTION.parts)


def test_a_policy_that_is_alone_is_told_so() -> None:
    """Catches: one prompt for all modes, under which nobody can know whether to fork."""
    spelled = [
        codec().decode(play_script("toy", question(), codec(), mode).episode.segments[0].tokens) for mode in MODES
    ]
    assert ["<|end|><|child|><|end|>" in text for text in spelled] == [True, False, False]
