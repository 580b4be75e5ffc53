"""Wire names and their checks; nothing behind this package sees a client's JSON."""
