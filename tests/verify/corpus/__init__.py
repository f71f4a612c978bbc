"""Public bugs of other people's stacks as dumps of at most 16 tokens, each with its right form."""
