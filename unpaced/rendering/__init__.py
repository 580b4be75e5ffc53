"""Chat templates, rendered in a process of their own that can be killed."""
