"""Single values that requests and settings share: their names, checks and wording."""
