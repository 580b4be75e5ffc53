"""The whole characters at the beginning of bytes that go on."""

from codecs import utf_8_decode


def decode_prefix(data: bytes) -> tuple[str, int]:
    """The text of all but a last, unfinished character, and how many bytes that took.

    Bytes that are no UTF-8, whatever follows, are U+FFFD as in `bytes.decode(errors="replace")`.
    """
    text, n_used = utf_8_decode(data, "replace", False)
    # Python waits for the third byte of a surrogate, which is no UTF-8 with any.
    if len(data) - n_used == 2 and data[n_used] == 0xED and data[n_used + 1] >= 0xA0:
        return text + "\ufffd\ufffd", len(data)
    return text, n_used
