"""What a row of a model with experts is taken to cost."""

from tiny_models import tiny_granite

from octopus.models.backbone import Backbone
from octopus.train.parallel.balance import Work


def test_a_row_costs_the_experts_that_it_goes_to() -> None:
    """Catches: experts left out, with which ranks would be dealt unevenly, or all of them counted."""
    one, two, none = (
        Work.of(Backbone(tiny_granite(**settings))).row
        for settings in ({"num_experts_per_tok": 1}, {}, {"num_local_experts": 0})
    )
    layers, hidden, inner = 3, 64, 32
    assert two - one == one - none == 2 * layers * 3 * hidden * inner
