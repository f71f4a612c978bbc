"""Attention over a plan by other people's dense kernels: rotate once, call, join, rotate back."""
