"""All static audits."""

from __future__ import annotations

from octopus.verify.audits import (
    declared,
    heads,
    losses,
    masks,
    mounts,
    order,
    pools,
    positions,
    rotary,
    stored,
    traces,
)
from octopus.verify.audits.audit import Audit

STATIC: tuple[Audit, ...] = (
    *declared.AUDITS,
    *masks.AUDITS,
    *stored.AUDITS,
    *order.AUDITS,
    *positions.AUDITS,
    *mounts.AUDITS,
    *rotary.AUDITS,
    *heads.AUDITS,
    *losses.AUDITS,
    *traces.AUDITS,
    *pools.AUDITS,
)
