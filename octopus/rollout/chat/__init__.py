"""Agents of models that have a chat template of their own: they act through its tool calls."""
