"""Static word vectors of the pieces of a tokenizer, trained by gensim."""

import time
from collections.abc import Callable

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import require_one_of
from research.baselines.token_rows import TokenRows

SKIP_GRAM, CBOW = "skip_gram", "cbow"


def train_word_vectors(
    rows: TokenRows,
    size: int,
    kind: str = SKIP_GRAM,
    max_tokens: int | None = None,
    max_minutes: float | None = None,
    window: int = 5,
    negative: int = 5,
    seed: int = 0,
    report: Callable[[int, float], None] | None = None,
) -> tuple[np.ndarray, int]:
    """Trains skip-gram or CBOW vectors with negative sampling.

    Args:
        rows: The text.
        size: The width of the vectors.
        kind: "skip_gram" or "cbow".
        max_tokens: Number of tokens to train on, counting repeated text; None for those of the
            text once. The learning rate falls to nearly 0 over them.
        max_minutes: Time after which training stops; None for no limit.
        window: The largest distance of two tokens that predict each other.
        negative: The number of tokens drawn at random for each one that is predicted.
        seed: The seed of the vectors and of the order. One thread trains, so runs are equal.
        report: Is called about every second with the tokens so far and the seconds.

    Returns:
        The vectors float32 `[V, size]`, zeros for pieces that do not occur, and the number of
        tokens.

    Raises:
        UserError: If gensim is not installed, or `kind` is unknown.

    Example:
        >>> from research.baselines import TokenRows, train_word_vectors
        >>> with open("short.txt", "w") as file:
        ...     _ = file.write("a good film\\n\\na bad film\\n" * 9)
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("reviews/")
        >>> rows = TokenRows(["short.txt"], tokenizer, max_length=32)
        >>> vectors, _ = train_word_vectors(rows, size=8, max_tokens=500)  # doctest: +SKIP
        >>> vectors.shape  # doctest: +SKIP
        (64, 8)

    Reference: Mikolov et al. 2013 (arXiv 1301.3781 and 1310.4546).
    """
    require_one_of("kind", kind, (SKIP_GRAM, CBOW))
    word2vec = require_package("gensim.models.word2vec", "word vectors")
    max_tokens = max_tokens or rows.num_tokens
    model = word2vec.Word2Vec(
        vector_size=size,
        window=window,
        negative=negative,
        sg=int(kind == SKIP_GRAM),
        min_count=1,
        sample=1e-3,
        seed=seed,
        workers=1,
    )
    model.build_vocab(_words(rows.rows()))
    stream = _Stream(rows, max_tokens, max_minutes, seed, report)
    model.train(stream, total_words=max_tokens, epochs=1, report_delay=1e9)
    vectors = np.zeros([rows.tokenizer.vocab_size, size], np.float32)
    ids = np.array([int(word) for word in model.wv.index_to_key])
    vectors[ids] = model.wv.vectors
    return vectors, stream.num_tokens


class _Stream:
    """The rows again and again, until the budget is used up."""

    def __init__(self, rows, max_tokens, max_minutes, seed, report):
        self.rows, self.max_tokens, self.seed, self.report = rows, max_tokens, seed, report
        self.seconds = float("inf") if max_minutes is None else 60.0 * max_minutes
        self.num_tokens = 0

    def __iter__(self):
        start = reported = time.monotonic()
        epoch = 0
        while True:
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.rows))
            for row in _words(self.rows.rows(order)):
                now = time.monotonic()
                if self.num_tokens >= self.max_tokens or now - start >= self.seconds:
                    return
                row = row[: self.max_tokens - self.num_tokens]
                self.num_tokens += len(row)
                if self.report is not None and now - reported >= 1.0:
                    self.report(self.num_tokens, now - start)
                    reported = now
                yield row
            epoch += 1


def _words(rows):
    """Yields the ids of each row as strings, which gensim takes."""
    return (list(map(str, row.tolist())) for row in rows)
