"""Corpora and search. Imports nothing else of ours."""
