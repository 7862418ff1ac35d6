"""Text for a terminal or a line of a file, where control characters could do harm."""


def escape_unprintable(text: str) -> str:
    r"""Returns the text with `\t`, `\n`, `\u3000` and so on for what is not printable.

    Example:
        >>> print(escape_unprintable("a\tb"))
        a\tb
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
