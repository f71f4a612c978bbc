"""A training run with an HTTP application beside it: what Prometheus scrapes, and what an operator asks for."""
