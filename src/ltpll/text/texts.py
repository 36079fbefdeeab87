"""Texts from anywhere, as both encoders read them."""

from __future__ import annotations

from collections.abc import Sequence

from ltpll.errors import InputError, shown


def readable_texts(texts: Sequence[str], longest: int) -> tuple[list[str], int]:
    """Cut texts, and replace what no encoding of text allows.

    Args:
        texts: The texts.
        longest: The number of characters that is kept of each text.

    Returns:
        The texts, and the number of those that were cut.

    Raises:
        InputError: If they are not a sequence of texts.
    """
    if isinstance(texts, str):
        raise InputError(f"The texts are one text, {shown(texts)}: give a list of texts.")
    found, n_cut = [], 0
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"Row {row} of the texts is {shown(text)}: give '' for a missing text."
            )
        n_cut += len(text) > longest
        # Halves of surrogate pairs, which neither tokenizers nor files accept.
        found.append(str(text[:longest]).encode("utf-8", "replace").decode())
    return found, n_cut
