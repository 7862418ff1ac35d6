"""Beam search finds the best of all sequences if there are enough beams."""

import itertools

import numpy as np
import tensorflow as tf

from bert_tf.generation import GenerationConfig, generate
from tests.generation import numpy_generation
from tests.generation.table_model import END, PAD, TableModel

ALLOWED = [END, 3, 4]
# With 12 beams, every unfinished sequence of these tokens is a beam until the fourth token, and all
# that end before are kept.
VOCAB_SIZE, NUM_BEAMS, LENGTH = 13, 12, 4
START = 5


def all_sequences():
    unfinished = [token for token in ALLOWED if token != END]
    for length in range(1, LENGTH + 1):
        for first in itertools.product(unfinished, repeat=length - 1):
            for last in ALLOWED if length == LENGTH else [END]:
                yield [*first, last]


def test_the_best_of_all_sequences():
    lengths = set()
    for length_penalty in (0.0, 1.0, 3.0, -0.3):
        config = GenerationConfig(
            max_new_tokens=LENGTH,
            num_beams=NUM_BEAMS,
            length_penalty=length_penalty,
            early_stopping="never",
        )
        for seed in range(4):
            model = TableModel(seed, vocab_size=VOCAB_SIZE, allowed=ALLOWED)
            scores = {}
            for sequence in all_sequences():
                total, token_ids = 0.0, [START]
                for token_id in sequence:
                    total += numpy_generation.log_softmax(model.logits(token_ids, 0))[token_id]
                    token_ids.append(token_id)
                scores[tuple(sequence)] = total / len(sequence) ** length_penalty
            best = max(scores, key=scores.get)
            lengths.add(len(best))
            ids = dict(end_id=END, pad_id=PAD, vocab_size=VOCAB_SIZE)
            found = generate(model.step, tf.constant([0]), [START], config, **ids)
            assert found.token_ids[0].numpy().tolist() == [*best, *[PAD] * (LENGTH - len(best))]
            np.testing.assert_allclose(found.scores, [scores[best]], rtol=1e-5)
    assert len(lengths) == LENGTH
