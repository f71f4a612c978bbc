"""The graph of tokens: segments, cursors, mounts, threads, page and state accounting, and the trace.

Plain Python throughout, so that fuzzers and schedulers can drive it fast; tensors appear in `storage` alone.
Imports nothing else of ours.
"""
