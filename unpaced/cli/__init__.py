"""The command line: `unpaced serve`, `complete`, `health`, `version`."""
