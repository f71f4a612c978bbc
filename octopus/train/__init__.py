"""From episodes to a gradient: packing, targets along paths, advantages, losses, the step, saves and metrics.

Never imports `verify`: the checker checks the trainer, not the other way round.
"""
