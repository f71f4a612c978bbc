"""A row as an environment to be played, and the judge of such rollouts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from octopus.core.errors import invariant
from octopus.retrieval.retriever import Retriever
from octopus.rollout.agents import Event
from octopus.rollout.codec import Codec
from octopus.rollout.control import Control, framed
from octopus.rollout.environment import NAME_END, Environment, Message
from octopus.rollout.play import CUT_OFF
from octopus.rollout.records import RolloutRecord
from octopus.rollout.tools import Tool, ToolLimits, ToolOutput
from octopus.train.data.rewards import Given, Rewards
from octopus.train.data.rows import Row


@dataclass(frozen=True, kw_only=True)
class AskedRow:
    """The row's prompt; the answer earns what reward functions say.

    Attributes:
        row: The row.
        rewards: The functions.
        retriever: What `search` and `open` ask; without one there are no tools but those of threads.
        results: Number of documents that a search shows, one a line: `id : first words`.
        words: Number of first words of a document that a search shows.
        limits: Limits of the tools.
        known: What answers earned that were judged before.
    """

    row: Row
    rewards: Rewards
    retriever: Retriever | None = None
    results: int = 5
    words: int = 24
    limits: ToolLimits = field(default_factory=lambda: ToolLimits(result_characters=2_000))
    known: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def gold(self) -> tuple[str, ...]:
        """Nobody has said which documents hold the answer."""
        return ()

    def prompt(self, codec: Codec) -> list[int]:
        """`<|question|> text <|end|>`."""
        return framed(Control.QUESTION, codec.encode_text(self.row.text))

    def messages(self) -> list[Message]:
        """The prompt's."""
        return self.row.messages

    def tools(self, turn: int) -> Mapping[str, Tool]:
        """`search` and `open`, in every turn, if there is something to search."""
        retriever = self.retriever
        if retriever is None:
            return {}

        def search(query: str) -> ToolOutput:
            found = [retriever.get_document(hit.document_id) for hit in retriever.search(query, self.results)]
            lines = [f"{document.id}{NAME_END}{' '.join(document.text.split()[: self.words])}" for document in found]
            return ToolOutput(text="\n".join(lines), documents=tuple(document.id for document in found))

        def open_document(docid: str) -> ToolOutput:
            document = retriever.get_document(docid)
            return ToolOutput(text=document.text, documents=(document.id,))

        return {
            "search": Tool(search, limits=self.limits),
            "open": Tool(open_document, limits=self.limits),
        }

    def score(self, answer: str, *, lost: Collection[int] = ()) -> float:
        """What an answer earns by itself. Rollouts are judged together, by `RowJudge`, which leaves it here."""
        if answer not in self.known:
            ((total, _),) = judgements(self.rewards, [self], [answer], [[]])
            self.known[answer] = total
        return self.known[answer]

    def reference(self, codec: Codec) -> list[int] | None:
        """Nobody has said which turn is right: only functions know."""
        return None


class RowJudge:
    """Asks the reward functions once for all rollouts of a step.

    A rollout that ended without an answer has answered with nothing, an empty text; one that was cut off, for want of
    memory or by an operator, is not judged. What each function said stands in the root's events, and so in the journal
    of episodes.
    """

    def __init__(self, rewards: Rewards) -> None:
        self._rewards = rewards

    def judge(
        self, environments: Sequence[Environment], records: Sequence[RolloutRecord]
    ) -> list[RolloutRecord]:
        """See `Judge`."""
        fair = [number for number, record in enumerate(records) if record.outcome not in CUT_OFF]
        asked = [_asked(environments[number]) for number in fair]
        answers = [records[number].answer or "" for number in fair]
        ids = [_sampled_by_root(records[number]) for number in fair]
        results = list(records)
        if fair:
            for number, environment, (total, values) in zip(
                fair, asked, judgements(self._rewards, asked, answers, ids), strict=True
            ):
                environment.known[records[number].answer or ""] = total
                results[number] = _rewarded(records[number], total, dict(zip(self._rewards.names, values, strict=True)))
        return results


def judgements(
    rewards: Rewards, asked: Sequence[AskedRow], answers: Sequence[str], ids: Sequence[list[int]]
) -> list[tuple[float, list[float | None]]]:
    """What each answer earns in all, and by each function. Raises OctopusError; see `Rewards`."""
    rows = [environment.row for environment in asked]
    given = Given(
        prompts=[_as_given(row) for row in rows],
        completions=[
            answer if isinstance(row.prompt, str) else [{"role": "assistant", "content": answer}]
            for row, answer in zip(rows, answers, strict=True)
        ],
        completion_ids=list(ids),
        columns={name: [row.columns[name] for row in rows] for name in rows[0].columns},
    )
    scored = zip(rows, rewards.score(given), strict=True)
    return [(rewards.total(values, rollout=row.name), values) for row, values in scored]


def _as_given(row: Row) -> Any:
    """The prompt in a copy of its own, since a function may change what it is given."""
    return row.prompt if isinstance(row.prompt, str) else [dict(message) for message in row.prompt]


def _asked(environment: Environment) -> AskedRow:
    invariant(isinstance(environment, AskedRow), "the judge of rows is asked about rows")
    assert isinstance(environment, AskedRow)
    return environment


def _sampled_by_root(record: RolloutRecord) -> list[int]:
    branches = {branch.thread for branch in record.episode.branches}
    return [
        token.segment.tokens[token.offset]
        for token in record.episode.sampled
        if token.live and token.thread not in branches
    ]


def _rewarded(record: RolloutRecord, total: float, by_function: Mapping[str, float | None]) -> RolloutRecord:
    said = [Event(kind="reward", argument=name, result=str(value)) for name, value in by_function.items()]
    root, *others = record.events
    return replace(
        record, episode=replace(record.episode, reward=total), events=((*root, *said), *others)
    )
