"""The commands about models: `unpaced pull`, `list` and `show`, and how a model is named."""
