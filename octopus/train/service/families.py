"""Families of metrics from figures that are kept elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

Values = dict[tuple[str, ...], float]
"""By the values of a metric's labels."""


def gauge(name: str, what: str, labels: tuple[str, ...], values: Values) -> Metric:
    """A gauge `octopus_NAME`."""
    return _filled(GaugeMetricFamily(f"octopus_{name}", what, labels=labels), values)


def counter(name: str, what: str, labels: tuple[str, ...], values: Values) -> Metric:
    """A counter `octopus_NAME_total`."""
    return _filled(CounterMetricFamily(f"octopus_{name}", what, labels=labels), values)


def closed(found: Mapping[str, float], names: Iterable[str]) -> Values:
    """The figures of these names, 0 where there is none: a series exists from the first scrape on."""
    return {(name,): found.get(name, 0) for name in names}


def histogram(name: str, what: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Metric:
    """A histogram `octopus_NAME`. `counts` has how many are at most each of `bounds`, then how many there are."""
    return HistogramMetricFamily(f"octopus_{name}", what, buckets=_buckets(bounds, counts), sum_value=total)


def histograms(
    name: str,
    what: str,
    label: str,
    bounds: Sequence[float],
    values: Mapping[str, tuple[Sequence[int], float]],
) -> Metric:
    """A histogram `octopus_NAME` for each value of a label: its counts, as of `histogram`, and its sum."""
    family = HistogramMetricFamily(f"octopus_{name}", what, labels=(label,))
    for value, (counts, total) in values.items():
        family.add_metric((value,), _buckets(bounds, counts), sum_value=total)
    return family


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    return list(zip([*map(str, bounds), "+Inf"], map(float, counts), strict=True))


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, values: Values
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, value in values.items():
        family.add_metric(labels, float(value))
    return family
