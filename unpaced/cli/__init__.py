"""The command line: `unpaced serve`, `chat`, `complete`, `pull`, `list`, `show` and others."""
