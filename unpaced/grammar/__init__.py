"""Structured output: from a request's fields to a grammar that its text must follow."""
