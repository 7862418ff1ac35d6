"""Random strings that look for trouble: every plane, and much of what tokenizers get wrong."""

import random
from collections.abc import Iterator, Sequence

STRINGS_AT_A_TIME = 5_000

TROUBLE = [
    "\0",
    "\ufffd",
    "\u200b",
    "\u200d",
    "\u00ad",
    "\ufeff",
    "\u180e",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\u2029",
    "\u1680",
    "\t",
    "\n",
    "\r",
    " ",
    "  ",
    "ß",
    "ẞ",
    "İ",
    "ı",
    "Σ",
    "ΑΣ",
    "ΣΑ",
    "Σ.",
    "'Σ",
    "ς",
    "ǅ",
    "ŉ",
    "ﬁ",
    "K",
    "Å",
    "é",
    "e\u0301",
    "\u0301",
    "\u0345",
    "\u0301\u0323",
    "\u302e",
    "\u302f",
    "\U0001d165",
    "\U0001d15e",
    "\U00016ff0",
    "\u1734",
    "\u0f73",
    "\u0bca",
    "\u0344",
    "\u09cb",
    "각",
    "한국어",
    "ᄀ",
    "\u1fef",
    "\u037e",
    "\u0387",
    "`",
    "·",
    "、",
    "。",
    "—",
    "“",
    "”",
    "€",
    "^",
    "~",
    "中",
    "文字",
    "㐀",
    "\U00020000",
    "豈",
    "\U0002f800",
    "ひらがな",
    "カタカナ",
    "ー",
    "😀",
    "👩\u200d👩\u200d👧",
    "\U0001f3fd",
    "❤\ufe0f",
    "\u0378",
    "\ufdd0",
    "\uffff",
    "\U0010ffff",
    "ไทย",
    "हिन्दी",
    "עברית",
    "العربية",
    "Ελληνικός",
    "Ω",
    "Русский",
    "Й",
    "[MASK]",
    "[UNK]",
    "##ing",
    "hello",
    "World",
    "unaffable",
    "don't",
    "U.S.",
    "3.14",
    "a" * 99,
    "é" * 101,
    "x" * 200,
    "x" * 201,
    "中" * 201,
    "\U00010400",
    "\U0001e900",
    "ª",
    "²",
    "½",
    "_",
    "$",
]


def random_string(generator: random.Random) -> str:
    parts = []
    for _ in range(generator.randint(0, 24)):
        kind = generator.random()
        if kind < 0.35:
            parts.append(generator.choice(TROUBLE))
        elif kind < 0.55:
            parts.append(chr(generator.randint(0x20, 0x7E)))
        elif kind < 0.65:
            parts.append(chr(generator.randint(0, 0x24F)))
        elif kind < 0.75:
            parts.append(chr(generator.randint(0x250, 0x1FFF)))
        elif kind < 0.82:
            parts.append(chr(generator.randint(0x2000, 0xD7FF)))
        elif kind < 0.86:
            parts.append(chr(generator.randint(0xE000, 0xFFFF)))
        elif kind < 0.93:
            parts.append(chr(generator.randint(0x10000, 0x1FFFF)))
        elif kind < 0.96:
            parts.append(chr(generator.randint(0x20000, 0x10FFFF)))
        else:
            parts.append(" ")
    return "".join(parts)


def random_ascii(generator: random.Random) -> str:
    """Strings that take the fast path, with long words and long runs of punctuation."""
    alphabet = generator.choice(
        [
            "abcdefghijklmnopqrstuvwxyz ",
            "".join(map(chr, range(0x20, 0x7F))) + "\t\n\r",
            "aB. ",
            "e",
        ]
    )
    length = generator.choice([0, 1, 5, 30, 199, 200, 201, 450])
    return "".join(generator.choice(alphabet) for _ in range(length))


def batches(number: int, inserted: Sequence[str], seed: int = 0) -> Iterator[list[str]]:
    """Yields random strings with up to three of the `inserted` ones in each."""
    generator = random.Random(seed)
    for start in range(0, number, STRINGS_AT_A_TIME):
        batch = []
        for index in range(min(STRINGS_AT_A_TIME, number - start)):
            text = (random_ascii if index % 5 == 0 else random_string)(generator)
            for _ in range(generator.randint(0, 3)):
                place = generator.randint(0, len(text))
                text = text[:place] + generator.choice(inserted) + text[place:]
            batch.append(text)
        yield batch
