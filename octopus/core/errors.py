"""Every error that Octopus raises on purpose.

Errors about the world (bad input, full memory) derive from `OctopusError`; their message says what was expected, what
came and what to do, and whatever was called has changed nothing. `InvariantViolation` means a bug of ours.
"""

from __future__ import annotations


class OctopusError(Exception):
    """Base of all errors that a caller can cause and mend."""


class CapacityExceeded(OctopusError):
    """A pool cannot give what was asked for, after the memory ladder was tried."""


class MemoryInUse(OctopusError):
    """The memory of a store was to be released while somebody holds a part of it."""


class MemoryReleased(OctopusError):
    """The memory of the store was released and has not been taken back."""


class StillLoading(OctopusError):
    """What the thread sees is on its way from the host tier; try again later."""


class StaleHandle(OctopusError):
    """A handle names something that was given back, or that belongs to another graph or pool."""


class DoubleRelease(StaleHandle):
    """The same page or state slot was given back twice."""


class NotRunning(OctopusError):
    """The thread is waiting or has ended."""


class UnreadableSource(OctopusError):
    """`read_thread` was asked for a thread that failed or was cancelled."""


class PlacementRefused(OctopusError):
    """The placement of a mount is unknown, or the model cannot do it."""


class RewindRefused(OctopusError):
    """The target of a rewind lies beyond the fork point, is abandoned, or needs a recompute that is not allowed."""


class WaitCycle(OctopusError):
    """A wait would close a cycle in the wait-for graph."""


class ForkRefused(OctopusError):
    """The fan-out or depth limit would be exceeded."""


class StaleWeights(OctopusError):
    """What was written with older weights may not be read with newer ones."""


class NotComputed(OctopusError):
    """Digest and commit need the KV of every token up to the cursor."""


class GenerateAfterMount(OctopusError):
    """Nothing may be sampled right after a mount: the predictor has not seen it."""


class UnsupportedModel(OctopusError):
    """The model's family, position scheme or a setting of it is not one that Octopus runs exactly."""


class ConfigError(OctopusError):
    """A configuration file or override has an unknown key or a value of the wrong type."""


class DamagedSave(OctopusError):
    """A save of a training run is not what its manifest says, or has none that can be read."""


class SaveFailed(OctopusError):
    """A save could not be written. Those before it are as they were."""


class Stopped(OctopusError):
    """A signal ended a training run, which was saved.

    Attributes:
        exit_code: Of the process: 128 and the signal's number.
    """

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class PlanError(OctopusError):
    """Segments cannot be lowered to a plan: a mount or wait runs against time, or a reference leads outside."""


class BackendUnavailable(OctopusError):
    """The attention backend that was named is unknown here."""


class InvariantViolation(Exception):
    """A rule of the data structure is broken: a bug of ours, never of the caller.

    Attributes:
        dump: The trace up to here as JSON lines, for `replay`; None where nobody kept one.
    """

    dump: str | None = None


class Contamination(InvariantViolation):
    """Computed memory does not hold any more what was written there: nothing sampled from it may be used."""


def invariant(condition: bool, message: str) -> None:
    """Raises `InvariantViolation` with `message` unless `condition` holds. Unlike `assert`, never optimised away."""
    if not condition:
        raise InvariantViolation(message)
