"""What every test shares: one torch thread per worker, since the workers already fill the cores."""

import torch

torch.set_num_threads(1)
