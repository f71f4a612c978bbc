"""Hugging Face models run on our plans: packed (training) and paged (rollouts), with tree-structured recurrent scans.

Our forward is bound on the library's own modules; a family that is not listed is refused. Imports `core` and
`attention`.
"""
