"""Searches the documents of a corpus, and makes one run of the results of several searches."""

import itertools

import numpy as np

from bert_tf.base.progress import progress_bar

BLOCK = 8192  # documents that are encoded and searched at a time


def search_corpus(encoder, queries, documents, k, similarity, total=None):
    """Finds the `k` best documents for each query, block by block.

    Args:
        encoder: The `BertSentenceEncoder`, or a `BertSparseEncoder`, whose weights are multiplied.
        queries: Texts by the id of the query.
        documents: Yields the id and the text of each document.
        k: The number of documents to find.
        similarity: "cosine" or "dot".
        total: The number of documents, for the progress bar.

    Returns:
        Scores by the id of the document, by the id of the query.
    """
    vectors = encoder.encode(list(queries.values()))  # [Q, D]
    scores, rows = np.zeros([len(queries), 0], np.float32), np.zeros([len(queries), 0], np.int64)
    ids = []
    documents = iter(documents)
    with progress_bar(total=total, desc="searching", unit="document", leave=False) as bar:
        while block := list(itertools.islice(documents, BLOCK)):
            matrix = encoder.encode([text for _, text in block])
            new_scores, new_rows = _best(vectors, matrix, k, similarity)
            scores = np.concatenate([scores, new_scores], axis=1)
            rows = np.concatenate([rows, new_rows + len(ids)], axis=1)
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # [Q, k]
            scores = np.take_along_axis(scores, order, axis=1)
            rows = np.take_along_axis(rows, order, axis=1)
            ids += [id_ for id_, _ in block]
            bar.update(len(block))
    return _by_ids(queries, ids, scores, rows)


def _best(vectors, matrix, k, similarity):
    from bert_tf.search import sparse_top_k, top_k

    if isinstance(matrix, np.ndarray):
        return top_k(vectors, matrix, k, similarity)
    return sparse_top_k(vectors, matrix, k)


def search_words(queries, documents, k):
    """Finds the `k` best documents for each query with BM25; see `search_corpus`."""
    from bert_tf.search import BM25Index

    ids, texts = zip(*documents)
    scores, rows = BM25Index(texts).search(list(queries.values()), k)
    return _by_ids(queries, ids, scores, rows)


def fused(runs, k, method, weights):
    """Makes one run of several, each with scores by the id of the document, by query."""
    from bert_tf.search import fuse_rankings
    from bert_tf.training.evaluation.ranking import ranked_documents

    queries = dict.fromkeys(query for run in runs for query in run)
    numbers = {}  # of the documents
    rankings = []
    for run in runs:
        ranked = [ranked_documents(run.get(query, {})) for query in queries]
        shape = len(queries), max(map(len, ranked))
        scores, rows = np.zeros(shape), np.full(shape, -1)
        for query, documents, values, row in zip(queries, ranked, scores, rows):
            values[: len(documents)] = [run[query][document] for document in documents]
            row[: len(documents)] = [numbers.setdefault(id_, len(numbers)) for id_ in documents]
        rankings.append((scores, rows))
    return _by_ids(queries, list(numbers), *fuse_rankings(rankings, k, method, weights))


def _by_ids(queries, ids, scores, rows):
    """Returns scores by the id of the document, by the id of the query; row -1 is none."""
    return {
        query: {ids[row]: score for row, score in zip(found, values) if row >= 0}
        for query, found, values in zip(queries, rows.tolist(), scores.tolist())
    }
