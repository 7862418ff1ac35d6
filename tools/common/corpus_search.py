"""Searches the documents of a corpus that need not fit into memory, block by block."""

import itertools

import numpy as np

from bert_tf.base.progress import progress_bar

BLOCK = 8192  # documents that are encoded and searched at a time


def search_corpus(encoder, queries, documents, k, similarity, total=None):
    """Finds the `k` best documents for each query.

    Args:
        encoder: The `BertSentenceEncoder`.
        queries: Texts by the id of the query.
        documents: Yields the id and the text of each document.
        k: The number of documents to find.
        similarity: "cosine" or "dot".
        total: The number of documents, for the progress bar.

    Returns:
        Scores by the id of the document, by the id of the query.
    """
    from bert_tf.search import top_k

    vectors = encoder.encode(list(queries.values()))  # [Q, D]
    scores, rows = np.zeros([len(queries), 0], np.float32), np.zeros([len(queries), 0], np.int64)
    ids = []
    documents = iter(documents)
    with progress_bar(total=total, desc="searching", unit="document", leave=False) as bar:
        while block := list(itertools.islice(documents, BLOCK)):
            matrix = encoder.encode([text for _, text in block])
            new_scores, new_rows = top_k(vectors, matrix, k, similarity)
            scores = np.concatenate([scores, new_scores], axis=1)
            rows = np.concatenate([rows, new_rows + len(ids)], axis=1)
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # [Q, k]
            scores = np.take_along_axis(scores, order, axis=1)
            rows = np.take_along_axis(rows, order, axis=1)
            ids += [id_ for id_, _ in block]
            bar.update(len(block))
    return {
        query: {ids[row]: score for row, score in zip(found, values)}
        for query, found, values in zip(queries, rows.tolist(), scores.tolist())
    }
