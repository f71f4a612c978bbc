"""Memory runs short and an episode is cancelled, while a real Prometheus scrapes the run: it counts what happened.

Catches: a counter that misses an event, counts it twice or falls; an alert that does not come, or does not go; a series
for every thread; figures that Prometheus and the run's own journal do not agree on.
"""

from __future__ import annotations

import json
import re
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import yaml
from test_alerts import OPS, instant, prometheus, promtool
from test_service import fetch, series, served, until

from octopus.train.journal import read_journal

SETTINGS = ("model.name=shipped", "imitation.steps=0", "grpo.questions=4", "grpo.rollouts=4", "rollout.turn_tokens=64")
SETTINGS += ("rollout.turns=12", "rollout.pages=160")  # Room for a few of the sixteen.
REFUSED = "octopus_memory_ladder_refusals_total"


def hasty_rules(folder: Path) -> Path:
    """Our alerts, in seconds instead of minutes."""
    groups = yaml.safe_load((OPS / "alerts.yml").read_text())
    for rule in groups["groups"][0]["rules"]:
        rule.pop("keep_firing_for", None)
        rule |= {"for": "2s", "expr": re.sub(r"\[\w+\]", "[6s]", rule["expr"])}
    (folder / "rules.yml").write_text(yaml.safe_dump(groups))
    return folder / "rules.yml"


def cancel_one(address: str) -> bool:
    """Whether an episode was live and is to end."""
    some = json.loads(fetch(f"{address}/status")[1])["live"]["some"]
    return bool(some) and fetch(f"{address}/cancel", "POST", {"episode": some[-1]["episode"]})[0] == 202


def test_what_happens_is_what_prometheus_counts(tmp_path: Path) -> None:
    rules = hasty_rules(tmp_path)
    with served(tmp_path, *SETTINGS) as (address, run), prometheus(tmp_path, address, rules) as base:
        value = partial(instant, base)

        def alerted(state: str, over: str) -> bool:
            found = f'ALERTS{{alertname="OctopusMemoryRefused", alertstate="{state}"}}'
            return value(f"max_over_time({found}[{over}])") == 1

        until(lambda: (value(REFUSED) or 0) > 0)
        until(lambda: alerted("pending", "1m"))
        until(lambda: alerted("firing", "1m"))
        until(lambda: cancel_one(address) and (value("sum(octopus_cancellations_total)") or 0) > 0)
        pages = []
        for _ in range(20):
            pages.append({k: v for k, v in series(fetch(f"{address}/metrics")[1]).items() if k[0].endswith("_total")})
            time.sleep(0.1)
        assert all(after[name] >= count for before, after in pairwise(pages) for name, count in before.items())
        fetch(f"{address}/pause", "POST")
        until(lambda: value("octopus_run_waiting") == 1)  # The step that was under way has been taken.

        def agrees() -> bool:
            outcomes = [line.get("outcomes", {}) for line in read_journal(tmp_path / "run" / "metrics.jsonl")]
            cancelled, every = sum(one.get("cancelled", 0) for one in outcomes), sum(sum(o.values()) for o in outcomes)
            counted = value('octopus_episodes_total{outcome="cancelled"}'), value("sum(octopus_episodes_total)")
            return counted == (cancelled, every) and cancelled > 0

        assert agrees()
        store = json.loads(fetch(f"{address}/status")[1])["store"]
        cancelled = value('octopus_episodes_total{outcome="cancelled"}')
        assert value('sum(octopus_cancellations_total{reason="operator"})') == cancelled
        assert value("octopus_cancel_release_seconds_count") == cancelled
        assert value(REFUSED) == store["refused"] > 0
        assert value("octopus_threads") == value('sum(octopus_kv_pages{state="used"})') == 0
        until(lambda: not alerted("firing", "2s") and not alerted("pending", "2s"))
        assert value(f"resets({REFUSED}[2m])") == 0 and (value('count({job="octopus"})') or 0) < 300
        promtool("check", "metrics", text=fetch(f"{address}/metrics")[1])
        run.terminate()
        assert run.wait(20) == 143
