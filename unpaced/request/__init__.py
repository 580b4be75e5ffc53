"""A request: read against the model, and compiled for the engine."""
