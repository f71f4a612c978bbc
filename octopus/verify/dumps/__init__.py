"""Helpers to paste into somebody else's training script: each file stands alone and writes what `octopus-verify` reads.

They import neither Octopus nor each other; `octopus-verify all FILE` audits what they leave.
"""
