"""Where a step's recurrent states and convolution columns come from and go to, as tensors.

Letters: T rows, R runs in the order in which the batches scan them, N runs whose state is kept, W kernel size,
X = W - 1 columns kept of each path, Z state slots, H value heads, K and V key and value dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from octopus.attention.step_plan import StepPlan
from octopus.models.recurrent import scan_batches


class StateIndex:
    """The part of a step plan that recurrent layers need: made once a step, used by every layer.

    A convolution chooses from the step's T new columns, the X stored ones of each run, and a last one of zeros. What
    decoding does not need is None, so that no layer launches it.

    Args:
        step: The batch.
        columns: X.
        device: Where the store is.

    Attributes:
        batches: The runs, grouped for the scan.
        sizes: Number of runs in each batch.
        read_R: The state slot each run starts from; any slot where `present_R` is false.
        present_R: Whether the run has a state to start from; None if all have.
        kept_N: The runs whose final state is kept; None for all.
        written_N: The slots they go to.
        taps_WT: The column 0, 1, ... steps before each row on its path, -1 for the one of zeros.
        tails_NX: The columns that each run whose state is kept leaves behind, oldest first.
    """

    def __init__(self, step: StepPlan, columns: int, device: torch.device) -> None:
        spans = [(run.start, run.stop) for run in step.runs]
        self.batches = scan_batches(spans, range(len(spans)), device)
        self.sizes = [len(batch.runs) for batch in self.batches]
        runs = [step.runs[run] for batch in self.batches for run in batch.runs]
        read_R = np.array([run.state_in for run in runs], dtype=np.int64)
        write_R = np.array([run.state_out for run in runs], dtype=np.int64)
        kept_N = np.flatnonzero(write_R >= 0)
        taps_WT = np.empty((columns + 1, len(step.tokens_T)), dtype=np.int64)
        tails_RX = np.empty((len(runs), columns), dtype=np.int64)
        for place, run in enumerate(runs):
            stored = len(step.tokens_T) + place * columns
            before_X = np.arange(stored, stored + columns) if run.state_in >= 0 else np.full(columns, -1)
            line = np.concatenate((before_X, np.arange(run.start, run.stop)))
            for back in range(columns + 1):
                taps_WT[back, run.start : run.stop] = line[columns - back : len(line) - back]
            tails_RX[place] = line[len(line) - columns :]

        self.read_R = torch.from_numpy(read_R.clip(min=0)).to(device)
        self.present_R = None if (read_R >= 0).all() else torch.from_numpy(read_R >= 0).to(device)
        self.kept_N = None if len(kept_N) == len(runs) else torch.from_numpy(kept_N).to(device)
        self.written_N = torch.from_numpy(write_R[kept_N]).to(device)
        self.taps_WT = torch.from_numpy(taps_WT).to(device)
        self.tails_NX = torch.from_numpy(tails_RX[kept_N]).to(device)

    def initial(self, stored_ZHKV: Tensor) -> Tensor:
        """The states that runs start from; zeros, selected and not multiplied, for those that have none."""
        stored_RHKV = stored_ZHKV[self.read_R]
        if self.present_R is None:
            return stored_RHKV
        return torch.where(self.present_R[:, None, None, None], stored_RHKV, stored_ZHKV.new_zeros(()))

    def keep(self, stored_ZHKV: Tensor, finals: Sequence[Tensor]) -> None:
        """Stores the states that runs end with, those of each batch together, in place."""
        final_RHKV = finals[0] if len(finals) == 1 else torch.cat(tuple(finals))
        kept_NHKV = final_RHKV if self.kept_N is None else final_RHKV[self.kept_N]
        stored_ZHKV.index_copy_(0, self.written_N, kept_NHKV.to(stored_ZHKV.dtype))
