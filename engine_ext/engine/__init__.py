"""The engine itself. Programs take it from `engine_ext`."""
