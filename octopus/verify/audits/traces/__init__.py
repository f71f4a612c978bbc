"""Audits of traces: the events of a graph are replayed, and every one is held against what came before it."""

from octopus.verify.audits.traces.layout import trace_subject
from octopus.verify.audits.traces.replay import AUDITS

__all__ = ["AUDITS", "trace_subject"]
