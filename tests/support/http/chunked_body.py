"""Bodies in HTTP's chunked coding, as a client finds them on its connection."""


def body_of(chunks: bytes) -> bytes:
    """The body in these chunks, all of which must be whole; the last one, of size 0, may miss."""
    body = b""
    while chunks:
        head, _, rest = chunks.partition(b"\r\n")
        n = int(head, 16)
        assert rest[n : n + 2] == b"\r\n"
        body += rest[:n]
        chunks = rest[n + 2 :]
        assert n or not chunks, "something follows the last chunk"
    return body
