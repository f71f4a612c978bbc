"""The checkers: an oracle that shares no code with what it checks, and executors that run an episode token by token."""
