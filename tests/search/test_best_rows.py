"""What all searches refuse: numbers of rows that are none, and vectors that are no matrix."""

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.search import (
    VectorIndex,
    community_detection,
    max_sim_top_k,
    mine_hard_negatives,
    paraphrase_mining,
    quantize_vectors,
    quantized_top_k,
    sparse_top_k,
    top_k,
)
from bert_tf.tasks.late_interaction import TokenVectors

CODES = quantize_vectors(np.eye(3), "binary")
TOKENS = TokenVectors(np.eye(3), [0, 1, 3])
OF_COUNTS = {
    "top_k": lambda k: top_k(np.eye(3), np.eye(3), k),
    "quantized_top_k": lambda k: quantized_top_k(np.eye(3), CODES, k, "binary"),
    "rescore": lambda k: quantized_top_k(np.eye(3), CODES, 1, "binary", rescore_multiplier=k),
    "max_sim_top_k": lambda k: max_sim_top_k(TOKENS, TOKENS, k),
    "sparse_top_k": lambda k: sparse_top_k(np.eye(3), np.eye(3), k),
    "paraphrases": lambda k: paraphrase_mining(np.eye(3), k),
    "pairs": lambda k: paraphrase_mining(np.eye(3), max_pairs=k),
    "communities": lambda k: community_detection(np.eye(3), min_community_size=k),
    "negatives": lambda k: mine_hard_negatives(np.eye(2), np.eye(2), [0, 1], k),
    "range_min": lambda k: mine_hard_negatives(np.eye(2), np.eye(2), [0, 1], range_min=k),
}


@pytest.mark.parametrize("name", OF_COUNTS)
def test_counts_are_integers(name):
    for wrong in (None, 2.0, "2", -1):
        with pytest.raises(UserError, match=f"must be an integer of at least .*={wrong!r}"):
            OF_COUNTS[name](wrong)
    assert OF_COUNTS[name](np.int64(2)) is not None


OF_VECTORS = {
    "queries": lambda vectors, _: top_k(vectors, np.eye(3), 1),
    "corpus": lambda vectors, _: top_k(np.eye(3), vectors, 1),
    "quantize": lambda vectors, _: quantize_vectors(vectors, "binary"),
    "sparse": lambda vectors, _: sparse_top_k(np.eye(3), vectors, 1),
    "paraphrases": lambda vectors, _: paraphrase_mining(vectors),
    "tokens": lambda vectors, _: TokenVectors(vectors, [0, 2]),
    "build": lambda vectors, path: VectorIndex.build(path, vectors),
    "index": lambda vectors, path: VectorIndex.build(path, np.eye(3)).search(vectors, 1),
}


@pytest.mark.parametrize("name", OF_VECTORS)
def test_vectors_are_arrays_of_numbers(name, tmp_path):
    texts = ["a", "b"]
    for wrong in ([[1.0, 2.0], [3.0]], texts, np.array(texts), np.array(texts, object), None):
        with pytest.raises(UserError, match="must be .*Received: "):
            OF_VECTORS[name](wrong, tmp_path / "index")
