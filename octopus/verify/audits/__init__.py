"""The static audits: what can be said from a dump, without running a model. numpy only."""

from octopus.verify.audits.audit import Audit, Inconclusive, NotNeeded, run
from octopus.verify.audits.static import STATIC

__all__ = ["STATIC", "Audit", "Inconclusive", "NotNeeded", "run"]
