"""Templates are rendered here, in a process of their own that can be killed."""
