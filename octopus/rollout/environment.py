"""What a question is to a rollout: the prompt, the tools, and what an answer earns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from octopus.rollout.codec import Codec, Control, framed
from octopus.rollout.judging import Judge
from octopus.rollout.tools import Tool, ToolLimits, ToolOutput

if TYPE_CHECKING:
    from octopus.retrieval.questions import Question
    from octopus.retrieval.retriever import Retriever

SEPARATOR = ", "
"""Between the names of an answer."""

NAME_END = " : "
"""Between the name of an object and the words of its document, in a search result."""


Message = Mapping[str, str]
"""`{"role": "user", "content": "..."}`: `role` is `system`, `user` or `assistant`."""


class Environment(Protocol):
    """One question. The same environment is played by every mode."""

    @property
    def gold(self) -> tuple[str, ...]:
        """The ids of the documents that hold the answer, one for each part of the question."""

    def prompt(self, codec: Codec) -> list[int]:
        """What is asked in the codec's tokens, at least one."""

    def messages(self) -> list[Message]:
        """What is asked as the messages of a chat, the last of them a user's."""

    def tools(self, turn: int) -> Mapping[str, Tool]:
        """The tools that exist in a thread's turn of that number, from 0, by name: `search`, `open`."""

    def score(self, answer: str, *, lost: Collection[int] = ()) -> float:
        """What an answer earns, 0 to 1; with `lost`, what it would earn if these parts of it were missing."""

    def reference(self, codec: Codec) -> list[int] | None:
        """The turn that gives the right answer; None where nobody knows one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """An environment to be played, once for each seed.

    The rollouts of a task share their prompt: it is computed once, and packed once.

    Attributes:
        name: What it is called in logs and errors.
        environment: The question.
        seeds: Seed of all random draws of each rollout.
        judge: Rewards its rollouts, with those of other tasks, in place of the environment.
    """

    name: str
    environment: Environment
    seeds: tuple[int, ...] = (0,)
    judge: Judge | None = None


@dataclass(frozen=True, kw_only=True)
class DescribedObjects:
    """Which objects are described? Each part of the question describes one; the answer is their names, in order.

    The prompt is `<|question|>`, for each part `<|part|> number description`, and `<|end|>`.

    Attributes:
        question: The question.
        retriever: What `search` asks.
        results: Number of documents that a search shows, one a line: `name : first words`.
        words: Number of first words of a document that are shown.
        lost: Share of searches whose results are lost on the way, as those of a busy service are: nothing is shown.
            Whether a search is one of them hangs on the question, the thread's turn and the words, so the rollouts of a
            task share their luck, and whoever asks again may have more of it.
        limits: Limits of `search`.
    """

    question: Question
    retriever: Retriever
    results: int = 1
    words: int = 24
    lost: float = 0.0
    limits: ToolLimits = field(default_factory=ToolLimits)

    @property
    def gold(self) -> tuple[str, ...]:
        """The document of each part."""
        return tuple(self.question.gold)

    def prompt(self, codec: Codec) -> list[int]:
        """See the class."""
        tokens = [int(Control.QUESTION)]
        for number, part in enumerate(self.question.parts, 1):
            tokens += [int(Control.PART), *codec.encode_text(f"{number} {part}")]
        return [*tokens, int(Control.END)]

    def messages(self) -> list[Message]:
        """The same in words."""
        parts = "\n".join(f"{number}. {part}" for number, part in enumerate(self.question.parts, 1))
        asked = (
            f"Which objects are described?\n{parts}\nAnswer with their names in this order, separated by {SEPARATOR!r}."
        )
        return [{"role": "user", "content": asked}]

    def tools(self, turn: int) -> Mapping[str, Tool]:
        """`search`, in every turn."""

        def search(query: str) -> ToolOutput:
            return ToolOutput(text="") if self._loses(turn, query) else self.search(query)

        return {"search": Tool(search, limits=self.limits)}

    def _loses(self, turn: int, query: str) -> bool:
        key = blake2b(repr((self.question.id, turn, query)).encode(), digest_size=4).digest()
        return int.from_bytes(key) < self.lost * 2**32

    def search(self, query: str) -> ToolOutput:
        """The names and first words of the documents that fit the query best."""
        hits = self.retriever.search(query, self.results)
        documents = [self.retriever.get_document(hit.document_id) for hit in hits]
        lines = [
            f"{document.name}{NAME_END}{' '.join(document.text.split()[: self.words])}"
            for document in documents
        ]
        return ToolOutput(text="\n".join(lines), documents=tuple(hit.document_id for hit in hits))

    def score(self, answer: str, *, lost: Collection[int] = ()) -> float:
        """1 for the whole answer, exactly; else half the share of right names in their right places.

        The share is of the places that the answer has or should have, whichever are more, so naming more objects than
        were asked for does not help. Partial credit is there so that a group of wrong answers has a gradient.
        """
        right = self.question.answer.split(SEPARATOR)
        given = answer.split(SEPARATOR)
        pairs = enumerate(zip(given, right, strict=False))
        matches = sum(one == other and place not in lost for place, (one, other) in pairs)
        if matches == len(right) == len(given):
            return 1.0
        return 0.5 * matches / max(len(right), len(given))

    def reference(self, codec: Codec) -> list[int]:
        """The right names, in the tokens in which a search shows them."""
        return answer_turn([codec.encode_text(name) for name in self.question.answer.split(SEPARATOR)], codec)


def answer_turn(names: Sequence[Sequence[int]], codec: Codec) -> list[int]:
    """The turn that answers with names in the very tokens in which they were shown: each as at a text's start."""
    tokens: list[int] = []
    for name in names:
        tokens += [*codec.encode_text(SEPARATOR), *name] if tokens else name
    return framed(Control.ANSWER, tokens)
