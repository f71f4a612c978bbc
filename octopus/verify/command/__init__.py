"""The `octopus-verify` command."""
