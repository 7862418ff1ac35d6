"""SQuAD's windows and answers in plain Python, token by token, to test against.

Written from the description of the method (Devlin et al. 2019, section 4.2; the comments of
google-research/bert's run_squad.py), without this package's code. `random_text` makes texts whose
tokens are known by construction.
"""

import math

WORDS = ("good", "bad", "film", "the")
LETTERS = "kqxyz"  # no word of the tiny vocabulary starts with them


def random_text(random, num_units):
    """A text of that many words and marks: it, and its pieces as (piece, start, end)."""
    text, pieces = "", []

    def add(surface, piece):
        nonlocal text
        pieces.append((piece, len(text), len(text) + len(surface)))
        text += surface

    for _ in range(num_units):
        kind = random.choice(("word", "letters", "accent", "mark", "ideograph"))
        if kind in ("word", "letters", "accent") or random.random() < 0.5:
            text += random.choice((" ", " ", "  ", "\n", "\u00a0 "))
        if kind == "word":
            word = random.choice(WORDS)
            add(random.choice((word, word.upper(), word.capitalize())), word)
        elif kind == "letters":
            for place in range(random.randint(1, 4)):
                letter = random.choice(LETTERS)
                add(letter, "##" * bool(place) + letter)
        elif kind == "accent":
            letter = random.choice(LETTERS)
            add(letter.upper(), letter)
            add(random.choice(("\u00e9", "e\u0301")), "##e")
        elif kind == "mark":
            add(".", ".")
        else:
            add(random.choice("\u6211\u5fd8"), "[UNK]")
    return text, pieces


def windows(question, context, max_length, doc_stride, max_query_length):
    """Dictionaries of `tokens`, `segments`, `context` (position -> context token), `best`."""
    question = question[:max_query_length]
    room = max_length - len(question) - 3
    spans, start = [], 0
    while True:
        length = min(len(context) - start, room)
        spans.append((start, length))
        if start + length == len(context):
            break
        start += min(length, doc_stride)
    result = []
    for number, (start, length) in enumerate(spans):
        part = context[start : start + length]
        tokens = ["[CLS]", *question, "[SEP]", *part, "[SEP]"]
        places = {len(question) + 2 + i: start + i for i in range(length)}
        best = set()
        for position, token in places.items():
            scores = [
                min(token - s, s + n - 1 - token) + 0.01 * n if s <= token < s + n else -1.0
                for s, n in spans
            ]
            if scores.index(max(scores)) == number:
                best.add(position)
        segments = [0] * (len(question) + 2) + [1] * (length + 1)
        result.append({"tokens": tokens, "segments": segments, "context": places, "best": best})
    return result


def target(window, first, last):
    """Where context tokens `first` to `last` stand in a window; (0, 0) if not all do."""
    position = {token: place for place, token in window["context"].items()}
    if first not in position or last not in position:
        return 0, 0
    return position[first], position[last]


def answers(text, pieces, window_list, logits, n_best_size, max_answer_length, version_2):
    """The n best as (text, start logit, end logit, probability), and the score difference.

    The original combines the n best starts and ends of all tokens, and may so miss the best span.
    This package looks at the 4 * n best spans of each window.
    """
    found, null = [], None
    for window, (starts, ends) in zip(window_list, logits):
        count = len(window["tokens"])
        if null is None or starts[0] + ends[0] < sum(null):
            null = (starts[0], ends[0])
        spans = [
            (start, end)
            for start in sorted(window["best"])
            for end in range(start, min(count, start + max_answer_length))
            if end in window["context"]
        ]
        spans.sort(key=lambda span: -(starts[span[0]] + ends[span[1]]))
        for start, end in spans[: 4 * n_best_size]:
            low = pieces[window["context"][start]][1]
            high = pieces[window["context"][end]][2]
            found.append((text[low:high], starts[start], ends[end]))
    if version_2:
        found.append(("", *null))
    found.sort(key=lambda row: -(row[1] + row[2]))
    n_best, seen = [], set()
    for row in found:
        if len(n_best) < n_best_size and row[0] not in seen:
            seen.add(row[0])
            n_best.append(row)
    if version_2 and "" not in seen:
        n_best.append(("", *null))
    if not n_best:
        n_best = [("", 0.0, 0.0)]
    shares = [math.exp(row[1] + row[2] - n_best[0][1] - n_best[0][2]) for row in n_best]
    n_best = [(*row, share / sum(shares)) for row, share in zip(n_best, shares)]
    spans = [row for row in found if row[0]]
    best = spans[0][1] + spans[0][2] if spans else 0.0
    return n_best, sum(null) - best
