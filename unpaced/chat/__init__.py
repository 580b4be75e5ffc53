"""Chat: messages in, a prompt and the rules of its answer out."""
