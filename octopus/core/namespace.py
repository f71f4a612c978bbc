"""What else but tokens and weights decides the KV that they give."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Namespace:
    """Prefixes are found within one namespace only. The version of the weights is always part of the question.

    Attributes:
        adapter: Name of the adapter that is active; empty for none.
        salt: Keeps tenants apart, or texts whose token ids stand for other content; empty for none. Whoever serves
            tenants derives it from who they are: one that a tenant names itself keeps nobody apart.
    """

    adapter: str = ""
    salt: str = ""


PLAIN = Namespace()
"""No adapter, no salt."""
