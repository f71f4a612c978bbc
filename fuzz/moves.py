"""What each kind of operation does to a world."""

from __future__ import annotations

from collections.abc import Callable

from fuzz import memory_moves as memory
from fuzz import thread_moves as threads
from fuzz.operations import Operation
from fuzz.world import World

MOVES: dict[str, Callable[..., None]] = {
    "root": threads.root,
    "root_from": threads.root_from,
    "append": threads.append,
    "fork": threads.fork,
    "fork_snapshot": threads.fork_snapshot,
    "read": threads.read,
    "wait": threads.wait,
    "tick": threads.tick,
    "mark": threads.mark,
    "rewind": threads.rewind,
    "rewind_to_mark": threads.rewind_to_mark,
    "rewind_to_snapshot": threads.rewind_to_snapshot,
    "commit": threads.commit,
    "cancel": threads.cancel,
    "fail": threads.fail,
    "drop": threads.drop,
    "weights": threads.weights,
    "stale": threads.stale,
    "compute": memory.compute,
    "begin_step": memory.begin_step,
    "pass": memory.pass_,
    "end_step": memory.end_step,
    "end_turn": memory.end_turn,
    "prioritise": memory.prioritise,
    "offload": memory.offload,
    "deliver": memory.deliver,
    "deliver_late": memory.deliver_late,
    "copier_fails": memory.copier_fails,
    "spoil_host": memory.spoil_host,
    "preempt": memory.preempt,
    "make_room": memory.make_room,
    "evict": memory.evict,
    "trim": memory.trim,
    "fail_allocation": memory.fail_allocation,
    "heal": memory.heal,
}
"""By the names and arguments of `operations.ARGUMENTS`."""


def apply(world: World, operation: Operation) -> None:
    """Does `operation` on both sides. Raises AssertionError where they disagree; checks nothing else."""
    MOVES[operation.kind](world, **operation.arguments)
