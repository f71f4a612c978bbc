"""A small scripted group for training tests, and its texts as tokens of the tiny models' vocabulary."""

from pathlib import Path

from tiny_models import VOCABULARY

from octopus.rollout.episode import Episode
from octopus.rollout.script import Script, ScriptedRollout, scripted_group

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "spine.toml"

SCRIPT = Script(
    name="colours",
    prompt="which is warm?",
    documents=("snow is white.", "the sky is blue.", "fire is red."),
    delimiter="[read]",
    right_answer="red",
    rollouts=(
        ScriptedRollout(notes=("cold", "cool", "warm"), first_try="hm", answer="red"),
        ScriptedRollout(notes=("cold!", "far", "hot"), first_try="what", answer="blue"),
        ScriptedRollout(notes=("ice", "air", "glow"), first_try="oh", answer="white"),
    ),
)


def encode(text: str) -> list[int]:
    """One token a character."""
    return [ord(character) % VOCABULARY for character in text]


def group() -> tuple[Episode, ...]:
    """The script played anew."""
    return scripted_group(SCRIPT, encode)
