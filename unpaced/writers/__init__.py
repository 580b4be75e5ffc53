"""Response bodies and stream events: the only place where wire shapes are written."""
