"""File formats, each by a parser that checks before it allocates and never evaluates, imports or unpickles."""
