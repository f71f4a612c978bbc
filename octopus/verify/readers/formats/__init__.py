"""Descriptions of who sees whom, where and to what end, as other people write them down: one module a format."""
