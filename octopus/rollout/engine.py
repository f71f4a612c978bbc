"""The engine: computes what threads need, many threads in one batch, and samples from them.

Letters: N threads or stretches of a batch, C hidden channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from octopus.core.cursor import Cursor
from octopus.core.errors import GenerateAfterMount, OctopusError, invariant
from octopus.core.graph import Graph
from octopus.core.limits import Limits
from octopus.core.pool import PagePool, StatePool
from octopus.core.reservation import Reservation
from octopus.core.schedule import Schedule, Stretch
from octopus.core.storage import KVStorage
from octopus.core.thread import Thread as Record
from octopus.core.trace import Trace
from octopus.models.backbone import Backbone
from octopus.models.loading import load_model
from octopus.rollout.frontier import Frontier
from octopus.rollout.generation import Generation
from octopus.rollout.sampling import Draw, choose
from octopus.rollout.thread import Thread

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Engine:
    """One backbone, one graph and the store behind it.

    Attributes:
        graph: Who sees what.
        backbone: The model.
        storage: Keys, values and recurrent states.
        seed: The episode's seed for random draws.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        pages: int = 1024,
        page_size: int = 16,
        state_slots: int = 64,
        batch_tokens: int = 1024,
        seed: int = 0,
        limits: Limits | None = None,
        trace: Trace | None = None,
    ) -> None:
        """Takes over `model`: from now on it runs through this engine only.

        Args:
            model: A Hugging Face causal language model of a listed family, on its device, in its dtype.
            tokenizer: Its tokenizer.
            pages: Number of KV pages, allocated at once.
            page_size: Tokens a page.
            state_slots: Number of recurrent states, for models that have them.
            batch_tokens: Most tokens of one forward pass; longer prompts are computed in chunks.
            seed: Seed of all random draws.
            limits: Fan-out and depth limits of the graph.
            trace: Gets every event of the graph.

        Raises:
            UnsupportedModel: the family, the position scheme or a setting is not one that is run exactly.
        """
        self.backbone = Backbone(model)
        self.tokenizer = tokenizer
        self.seed = seed
        shape = self.backbone.kv_shape
        states = StatePool(state_slots) if shape.recurrent_layers else None
        pool = PagePool(pages, page_size=page_size)
        self.graph = Graph(pages=pool, states=states, limits=limits, trace=trace)
        self.storage = KVStorage(
            shape,
            num_slots=pages * page_size,
            num_states=0 if states is None else state_slots,
            dtype=self.backbone.dtype,
            device=self.backbone.device,
        )
        self._page_size = page_size
        self._batch_tokens = batch_tokens
        self._frontier = Frontier()

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        *,
        dtype: torch.dtype | None = None,
        device: str | None = None,
        gguf_file: str | None = None,
        pages: int = 1024,
        seed: int = 0,
    ) -> Engine:
        """An engine for a Hugging Face model; on a GPU in bfloat16 if there is one, else on the CPU in float32."""
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = dtype or (torch.float32 if device == "cpu" else torch.bfloat16)
        model, tokenizer = load_model(name_or_path, dtype=dtype, device=device, gguf_file=gguf_file)
        return cls(model, tokenizer, pages=pages, seed=seed)

    def thread(self, text: str | Sequence[int] = "") -> Thread:
        """A new root thread that begins with `text` (or token ids), with the tokenizer's own opening tokens."""
        thread = Thread(self, self.graph.thread())
        if isinstance(text, str):
            thread.append(self.tokenizer(text).input_ids if text else [])
        else:
            thread.append(text)
        return thread

    def generate(
        self,
        threads: Sequence[Thread],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        stop_tokens: Collection[int] | None = None,
    ) -> list[Generation]:
        """Samples up to `max_tokens` tokens for each thread, all threads in one batch a token.

        Args:
            threads: Running threads of this engine, each once.
            max_tokens: Most tokens of each, at least 1.
            temperature: 0 for greedy.
            stop_tokens: Token ids that end a thread's turn; None for those of the model's generation settings.

        Raises:
            GenerateAfterMount: a thread has mounted and not yet been given a token since.
            CapacityExceeded: a pool is too small. What was sampled before stays on the threads.
        """
        if max_tokens < 1 or temperature < 0:
            raise ValueError(f"max_tokens is at least 1 and temperature at least 0, got {max_tokens} and {temperature}")
        if len(set(threads)) != len(threads):
            raise ValueError("generate takes each thread once; fork a thread to sample from it twice")
        stops = set(self._default_stops() if stop_tokens is None else stop_tokens)
        sampled: dict[Thread, list[tuple[int, float]]] = {thread: [] for thread in threads}
        active = list(threads)
        for _ in range(max_tokens):
            draws = [Draw(self.seed, thread.record.path, thread.draws) for thread in active]
            chosen = self.sample([thread.record for thread in active], draws, temperature=temperature)
            for thread, (token, log_probability) in zip(active, chosen, strict=True):
                thread.append_sampled(token, log_probability)
                sampled[thread].append((token, log_probability))
            active = [thread for thread in active if sampled[thread][-1][0] not in stops]
            if not active:
                break
        return [self._generation(sampled[thread], stops) for thread in threads]

    @torch.inference_mode()
    def sample(
        self, records: Sequence[Record], draws: Sequence[Draw], *, temperature: float, also: Sequence[Record] = ()
    ) -> list[tuple[int, float]]:
        """One token for each thread, and its log-probability at temperature 1, all in one batch. Appends nothing.

        Args:
            records: Running threads of the graph.
            draws: The random draw of each; not used at temperature 0.
            temperature: 0 for greedy.
            also: Threads that are only computed, in the same batch; they may be committed afterwards.

        Raises:
            GenerateAfterMount: a thread has mounted and not yet been given a token since.
            CapacityExceeded: a pool is too small. Nothing has changed.
        """
        for record in records:
            self._refuse_unready(record)
        for record in also:
            self.graph.refuse_unready(record)
        cursors = [record.cursor for record in records]
        self._compute(cursors, [record.cursor for record in also])
        if not cursors:
            return []
        rows = [self._frontier.get(cursor) for cursor in cursors]
        invariant(all(row is not None for row in rows), "everybody who is sampled from has a hidden state")
        hidden_NC = torch.stack([row for row in rows if row is not None])
        return list(zip(*self._choose(hidden_NC, records, draws, temperature), strict=True))

    def compute(self, threads: Sequence[Thread]) -> None:
        """Computes the KV (and state) of everything the threads have recorded. Raises CapacityExceeded."""
        for thread in threads:
            self.graph.refuse_unready(thread.record)
        self._compute([], [thread.record.cursor for thread in threads])

    def trim(self) -> None:
        """Gives back at once what nobody can reach; else it is given back when its room is needed."""
        retention = self.graph.retention
        while retention.cached:
            retention.evict(next(iter(retention.cached)))

    def advance_weights(self) -> None:
        """The weights have changed: every call with an older thread is refused, but for cancel and drop."""
        self.graph.advance_weights()
        self._frontier.clear()

    # ---- inner workings ----

    def _choose(
        self, hidden_NC: Tensor, records: Sequence[Record], draws: Sequence[Draw], temperature: float
    ) -> tuple[list[int], list[float]]:
        return choose(self.backbone.logits(hidden_NC), draws, temperature)

    def _compute(self, sampled: Sequence[Cursor], others: Sequence[Cursor]) -> None:
        """Makes every cursor ready, and the last hidden states of those that are sampled from.

        Reserves for the whole schedule, acts wave by wave, publishes.
        """
        schedule = Schedule(recurrent=self.graph.retention.states is not None, chunk_tokens=self._batch_tokens)
        for cursor in sampled:
            schedule.require(cursor, hidden=self._frontier.get(cursor) is None)
        for cursor in others:
            schedule.require(cursor)
        reservation = Reservation(self.graph.retention, schedule.stretches)
        try:
            for wave in schedule.waves:
                for batch in _batches(wave, self._batch_tokens):
                    self._run(batch, reservation)
        finally:
            reservation.abandon()

    def _run(self, batch: list[Stretch], reservation: Reservation) -> None:
        moves = [(stretch, reservation.state_move(stretch)) for stretch in batch]
        hidden_NC = self.backbone.advance(moves, self.storage, page_size=self._page_size)
        for stretch, hidden_C in zip(batch, hidden_NC.unbind(), strict=True):
            reservation.publish(stretch)
            self._frontier.put(stretch.segment, stretch.stop, hidden_C)

    def _refuse_unready(self, record: Record) -> None:
        self.graph.refuse_unready(record)
        segment, length = record.cursor
        if record.cursor.path_length == 0:
            raise OctopusError(f"thread {record.id} has no token yet: the first token must be given, not sampled")
        if segment.mounts and length == 0:
            raise GenerateAfterMount(
                f"thread {record.id} has just read another thread; its last token has not seen that. "
                "Append at least one token (a closing delimiter, say) before generating"
            )

    def _default_stops(self) -> list[int]:
        config = self.backbone.model.generation_config
        stops = None if config is None else config.eos_token_id
        return [] if stops is None else [stops] if isinstance(stops, int) else list(stops)

    def _generation(self, sampled: list[tuple[int, float]], stops: set[int]) -> Generation:
        tokens = tuple(token for token, _ in sampled)
        return Generation(
            text=str(self.tokenizer.decode(list(tokens), skip_special_tokens=True)),
            tokens=tokens,
            log_probabilities=tuple(log_probability for _, log_probability in sampled),
            stopped=tokens[-1] in stops,
        )


def _batches(wave: list[Stretch], batch_tokens: int) -> Iterator[list[Stretch]]:
    """Cuts a wave into batches of at most `batch_tokens` tokens; no stretch is longer than that."""
    batch: list[Stretch] = []
    tokens = 0
    for stretch in wave:
        length = stretch.stop - stretch.start
        if batch and tokens + length > batch_tokens:
            yield batch
            batch, tokens = [], 0
        batch.append(stretch)
        tokens += length
    if batch:
        yield batch
