"""The engine: computes what threads need, many threads in one batch, and samples from them.

Letters: N threads or stretches of a batch, C hidden channels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from octopus.core.errors import GenerateAfterMount, NotRunning, OctopusError, StaleHandle, invariant
from octopus.core.graph import Graph
from octopus.core.limits import Limits
from octopus.core.pool import PagePool, StatePool
from octopus.core.seals import Seals
from octopus.core.storage.host import host_tier
from octopus.core.storage.kv import KVStorage
from octopus.core.storage.seals import TensorSeals
from octopus.core.thread import Status
from octopus.core.thread import Thread as Record
from octopus.core.trace import Trace
from octopus.models.backbone import Backbone
from octopus.models.loading import load_model
from octopus.rollout.device_memory import release, take_back
from octopus.rollout.generation import Generation
from octopus.rollout.passes import Passes
from octopus.rollout.sampling import Draw
from octopus.rollout.thread import Thread
from octopus.rollout.turns import Turns

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
        host_pages: int = 0,
        host_states: int = 0,
        seal_rate: float | None = None,
        backend: str = "torch",
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
            host_pages: Pages of host memory for what no running thread sees.
            host_states: Recurrent states, likewise.
            seal_rate: Share of the pages read in a step that are compared with their fingerprints; None keeps none.
            backend: What computes attention over stored keys: `torch` everywhere, `triton` (our kernels) on a GPU.
            limits: Fan-out and depth limits of the graph.
            trace: Gets every event of the graph.

        Raises:
            UnsupportedModel, BackendUnavailable: the model, or the backend where it is, cannot be run exactly.
        """
        self.backbone = Backbone(model, paged_backend=backend)
        self.tokenizer = tokenizer
        self.seed = seed
        shape = self.backbone.kv_shape
        states = StatePool(state_slots) if shape.recurrent_layers else None
        self.storage = KVStorage(
            shape,
            num_slots=pages * page_size,
            num_states=0 if states is None else state_slots,
            dtype=self.backbone.dtype,
            device=self.backbone.device,
        )
        seals = None if seal_rate is None else TensorSeals(self.storage, page_size=page_size)
        self.graph = Graph(
            pages=PagePool(pages, page_size=page_size),
            states=states,
            host=host_tier(self.storage, seals, pages=host_pages, states=host_states, page_size=page_size),
            seals=None if seals is None or seal_rate is None else Seals(seals, rate=seal_rate),
            limits=limits,
            trace=trace,
        )
        self._passes = Passes(self.graph, self.backbone, self.storage, page_size, batch_tokens)
        self._frontier = self._passes.frontier

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

        A thread that is cancelled meanwhile ends with what it had; the others go on.

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
        for thread in threads:
            self._refuse_unready(thread.record)
        turns = Turns(threads, key=lambda thread: (-thread.record.priority, thread.id))
        while turns.active:
            with turns.parking():
                chosen = self._sample_running(turns.active, temperature)
                with self.graph.lock:  # So that nobody is cancelled in between.
                    for thread, (token, log_probability) in chosen.items():
                        if thread.status is Status.RUNNING:
                            thread.append_sampled(token, log_probability)
                            sampled[thread].append((token, log_probability))
                    turns.keep(
                        lambda t: t.status is Status.RUNNING
                        and len(sampled[t]) < max_tokens
                        and not (sampled[t] and sampled[t][-1][0] in stops)
                    )
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
        self._passes.make_ready(records, also)
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
        self._passes.make_ready([], [thread.record for thread in threads])

    def trim(self) -> None:
        """Gives back at once what nobody can reach; else it is given back when its room is needed."""
        self.graph.trim()

    def advance_weights(self) -> None:
        """The weights have changed: every call with an older thread is refused, but for cancel and drop."""
        self.graph.advance_weights()
        self._frontier.clear()

    def release_memory(self) -> None:
        """Gives the device the memory of keys, values and states, for a trainer to use; cached lines are forgotten.

        Until `take_back_memory`, whatever would compute raises MemoryReleased. Nothing if it is released already.

        Raises:
            MemoryInUse: somebody holds a part of it; the message says who.
        """
        release(self.graph, self.storage)
        self._frontier.clear()

    def take_back_memory(self) -> None:
        """Allocates the memory again: nothing that was computed before is there. Nothing if it is not released.

        If the weights have changed meanwhile, call `advance_weights` first, as ever.

        Raises:
            CapacityExceeded: the device has too little. It stays released, and may be taken back later.
        """
        if self.storage.released:
            take_back(self.storage)

    # ---- inner workings ----

    def _sample_running(
        self, threads: Sequence[Thread], temperature: float
    ) -> dict[Thread, tuple[int, float]]:
        """One token for each of `threads` that has not been ended by somebody else. Raises CapacityExceeded."""
        while True:
            running = [thread for thread in threads if thread.status is Status.RUNNING]
            records = [thread.record for thread in running]
            draws = [Draw(self.seed, thread.record.path, thread.draws) for thread in running]
            try:
                return dict(zip(running, self.sample(records, draws, temperature=temperature), strict=True))
            except (NotRunning, StaleHandle):
                if all(thread.status is Status.RUNNING for thread in running):
                    raise

    def _choose(
        self, hidden_NC: Tensor, records: Sequence[Record], draws: Sequence[Draw], temperature: float
    ) -> tuple[list[int], list[float]]:
        return self._passes.choose(hidden_NC, draws, temperature)

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
            stopped=bool(tokens) and tokens[-1] in stops,
        )

