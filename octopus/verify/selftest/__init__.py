"""Faults planted on purpose, and the matrix of which of them the audits catch."""
