"""Header names that go out as they are spelled."""


class ExactName(bytes):
    """A header name that uvicorn does not write in small letters.

    Names have no case, but programs that keep a response's headers in a plain dictionary look for
    llama-server's spelling.
    """

    def lower(self) -> bytes:
        """Itself."""
        return self
