"""A prompt's text cut into what each of its tokens stands for."""

from collections.abc import Sequence


def cut_text(
    text: str, tokens: Sequence[int], pieces: Sequence[bytes], pieces_special: Sequence[bytes]
) -> list[bytes] | None:
    """For each token its part of `text`; joined they are the text. `pieces`: every token's bytes,
    none for control tokens, which `pieces_special` writes out.

    SentencePiece tokenisers put a space in front of what follows nothing or a control token, and
    BOS comes without being written: such a part is shorter than its piece. None where the
    vocabulary changes the text in other ways (Unicode normalisation).
    """
    data = text.encode("utf-8", "surrogatepass")
    parts = []
    at = 0
    for i, token in enumerate(tokens):
        piece = pieces_special[token]
        part = next((p for p in (piece, piece.removeprefix(b" ")) if data.startswith(p, at)), None)
        if part is None:
            if i > 0 and pieces[token]:
                return None
            part = b""  # BOS or EOS
        parts.append(part)
        at += len(part)
    return parts if at == len(data) else None
