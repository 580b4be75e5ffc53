"""Chat: messages in, templates, and what a model's text means."""
