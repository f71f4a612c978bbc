"""Fuzzers of the store: random, exhaustive and planted attacks on `octopus.core`, and a model to compare it with.

`python -m fuzz smoke|ci|soak|canary|mutants` runs them. Nothing here is part of the package.
"""
