"""Text from outside, made harmless and short: names in a file are anyone's, and a page may be shown to anybody.

Markup is escaped where it is written, by each format's own rules. Here goes what no format wants: characters that move
a cursor, turn the writing around or cannot be encoded, and the middle of what nobody would read to the end.
"""

import unicodedata

MOST = 240
"""Characters: the longest kernel names have a thousand, and say all that they say in their first hundred."""

_UNWANTED = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Unicode's controls, invisible format marks such as right-to-left overrides, surrogates, line separators."""


def plain(text: str, most: int = MOST) -> str:
    """One line; what was left out or replaced can be seen."""
    if len(text) > most:
        text = f"{text[: most * 2 // 3]} … {text[-most // 3 :]}"
    return text if text.isprintable() else "".join(_kept(character) for character in text)


def _kept(character: str) -> str:
    if character in "\n\t":
        return " "
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _UNWANTED else character


def capital(text: str) -> str:
    """The first letter large, and nothing else touched: the rest may be a name."""
    return text[:1].upper() + text[1:]
