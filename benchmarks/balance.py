"""Counts the tokens of each replica in every step, in the order of the data and dealt by tokens.

Nothing is timed: the numbers are the same on every machine.
"""

import os

import numpy as np

from research.corpora.film_reviews import read_film_reviews

from .report import Report, Table

REVIEWS = os.path.join("film_reviews", "rotten_tomatoes_corpus_full.csv.bz2")
VOCABULARY = os.path.join("minilm", "vocab.txt")
# The files of `research/fetch_materials.py` that are needed.
MATERIALS = (REVIEWS, VOCABULARY)
REPLICAS = (2, 4, 8)
ROWS = (8, 16, 32)  # per replica
ALLOWED = 0.05  # how far a replica's tokens may be from the mean, as a share of it


def run(materials: str, report: Report, steps: int) -> None:
    """Adds two tables per corpus: of batches of a number of rows, and of a number of tokens.

    Args:
        materials: The directory of `research/fetch_materials.py`.
        report: What the tables are added to.
        steps: The number of steps that each row of a table is computed from.
    """
    from bert_tf import BertTokenizer
    from bert_tf.inputs.token_rows import TokenizedTexts

    tokenizer = BertTokenizer(os.path.join(materials, VOCABULARY))
    reviews = read_film_reviews(os.path.join(materials, REVIEWS))
    films = {}
    for text, _, film in reviews:
        films.setdefault(film, []).append(text)
    corpora = {
        "film reviews, at most 128 tokens": ([text for text, *_ in reviews], 128),
        "all reviews of a film, at most 512 tokens": (list(map(" ".join, films.values())), 512),
    }
    for title, (texts, longest) in corpora.items():
        texts = np.array(texts, object)
        lengths = TokenizedTexts.of(tokenizer, (texts,), longest).lengths()
        for by_tokens, name in ((False, "rows"), (True, "tokens")):
            rows = [
                {
                    "replicas": replicas,
                    "rows per replica": f"about {size}" if by_tokens else size,
                    **imbalance(lengths, replicas, size, by_tokens, steps),
                }
                for replicas in REPLICAS
                for size in ROWS
            ]
            heading = f"Tokens of replicas, batches by {name}, {len(texts)} texts: {title}"
            report.add(Table(heading, rows))


def imbalance(
    lengths: np.ndarray, replicas: int, rows: int, by_tokens: bool, steps: int
) -> dict[str, float]:
    """Returns a row of the tables: most tokens of a replica / mean, before and after dealing.

    Args:
        lengths: The number of tokens of each text, int64 `[n]`.
        replicas: The number of replicas.
        rows: The number of rows per replica.
        by_tokens: Whether batches have the mean tokens of so many rows, in place of the rows.
        steps: The number of steps. Steps with fewer rows, at the end of an epoch, do not count.
    """
    from bert_tf.inputs.balanced_rows import deal_rows
    from bert_tf.inputs.batches import EpochBatches

    count = rows * replicas
    limit = {"token_budget": int(lengths.mean() * count)} if by_tokens else {"batch_size": count}
    batches = EpochBatches(lengths, **limit)
    found = {"before": [], "after": []}
    epoch = 0
    while len(found["after"]) < steps:
        for batch in batches.of_epoch(epoch):
            if len(batch) < replicas if by_tokens else len(batch) < count:
                continue
            order, splits = deal_rows(lengths[batch], replicas)
            for name, own in (("before", batch), ("after", batch[order])):
                tokens = np.add.reduceat(lengths[own], splits[:-1])
                found[name].append(tokens / tokens.mean())
        epoch += 1
    cells = {}
    for name, shares in found.items():
        shares = np.array(shares[:steps])  # [steps, replicas]
        most = shares.max(axis=1)
        cells[f"mean {name}"] = float(most.mean())
        cells[f"95 % {name}"] = float(np.percentile(most, 95))
        within = np.abs(shares - 1).max(axis=1) <= ALLOWED
        cells[f"within ±5 % {name}"] = float(within.mean())
    return cells
