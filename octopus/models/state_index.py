"""Where a step's recurrent states and convolution columns come from and go to, as tensors.

Letters: T rows, R runs in the order in which the batches scan them, N runs whose state is kept, W kernel size,
X = W - 1 columns kept of each path.
"""

from __future__ import annotations

import numpy as np
import torch

from octopus.attention.step_plan import StepPlan
from octopus.models.recurrent import scan_batches


class StateIndex:
    """The part of a step plan that recurrent layers need: made once a step, used by every layer.

    A convolution chooses from the step's T new columns followed by the X stored ones of each run.

    Args:
        step: The batch.
        columns: X.
        device: Where the store is.

    Attributes:
        batches: The runs, grouped for the scan.
        sizes: Number of runs in each batch.
        read_R: The state slot each run starts from; any slot where `present_R` is false.
        present_R: Whether the run has a state to start from.
        kept_N: The runs whose final state is kept.
        written_N: The slots they go to.
        taps_WT: The column 0, 1, ... steps before each row on its path; see `short_convolution`.
        tails_RX: The columns each run leaves behind, oldest first.
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
        self.present_R = torch.from_numpy(read_R >= 0).to(device)
        self.kept_N = torch.from_numpy(kept_N).to(device)
        self.written_N = torch.from_numpy(write_R[kept_N]).to(device)
        self.taps_WT = torch.from_numpy(taps_WT).to(device)
        self.tails_RX = torch.from_numpy(tails_RX).to(device)
