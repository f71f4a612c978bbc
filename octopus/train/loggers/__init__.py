"""Where a run's figures go besides `metrics.jsonl`: TensorBoard, Weights & Biases, trackio, each by its own library.

After a resume the figures of steps that are trained again come a second time, with the same values. TensorBoard drops
the first ones and Weights & Biases the second ones; trackio knows neither, and shows both.
"""

from octopus.train.loggers.several import Loggers

__all__ = ["Loggers"]
