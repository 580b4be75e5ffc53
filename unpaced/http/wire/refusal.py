"""An answer of the connection's own, after which it is closed."""


def refusal(status: bytes, text: bytes) -> bytes:
    """Such as `431 Request Header Fields Too Large`; `text` is its body, in plain text."""
    head = b"HTTP/1.1 %b\r\nconnection: close\r\n" % status
    kind = b"content-type: text/plain; charset=utf-8\r\n" if text else b""
    return head + kind + b"content-length: %d\r\n\r\n" % len(text) + text
