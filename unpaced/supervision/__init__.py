"""A small process that holds the sockets and replaces a server that dies or hangs."""
