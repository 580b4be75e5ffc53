"""Tools: what a request offers, and how a model's text calls them."""
