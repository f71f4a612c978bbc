"""Saves of a training run: each exists whole or not at all, says what it should hold, and resumes exactly.

A run's folder holds one folder a save, and a file that names the newest:

    step-000010/model.safetensors         what training changes of the model; in shards of bounded size if it is large
    step-000010/optimizer.safetensors     the optimizer's tensors, by the names of the parameters; likewise
    step-000010/optimizer.json            its groups and plain numbers
    step-000010/generators-00000.json     random generators, one file for each rank
    step-000010/manifest.json             step, number of ranks, digest of the configuration, size and hash of each file
    latest                                `step-000010`

Everything is written aside, waited for until it is on the disk, and renamed; `latest` is replaced last.
"""

from octopus.train.saves.folder import newest, path_of, prune, saved_steps, tidy, to_resume
from octopus.train.saves.generators import generators
from octopus.train.saves.manifest import Save, check
from octopus.train.saves.reading import load
from octopus.train.saves.writing import save

__all__ = [
    "Save",
    "check",
    "generators",
    "load",
    "newest",
    "path_of",
    "prune",
    "save",
    "saved_steps",
    "tidy",
    "to_resume",
]
