"""Time: the engine that steps all runnable threads as one batch, sampling, and the episodes that come out of it."""
