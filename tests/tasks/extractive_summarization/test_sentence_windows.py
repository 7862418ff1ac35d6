"""Documents to windows of whole sentences, and a value for each sentence back again."""

import random

import numpy as np
import tensorflow as tf

from bert_tf import BertTokenizer
from bert_tf.tasks.extractive_summarization.preprocessor import SentenceWindows


def test_any_documents_are_put_together_again(tiny_vocabulary):
    tokenizer, generator = BertTokenizer(tiny_vocabulary), random.Random(1)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    for max_length in (3, 7, 12, 200):
        documents = [
            [" ".join(generator.choices("abcd", k=generator.randint(0, 15))) for _ in range(size)]
            for size in (4, 0, 1, 12, 0, 5)
        ]
        sentences = tf.ragged.constant(documents, tf.string, row_splits_dtype=tf.int64)
        windows = SentenceWindows(tokenizer, sentences, max_length)
        assert windows.lengths().max() <= max_length
        batch = windows.batch(np.arange(len(windows)))
        rows = [ids[:length] for ids, length in zip(batch["token_ids"], windows.lengths())]
        received = {number: [] for number in range(len(documents))}
        segments = batch["segment_ids"]
        for window, (document, ids) in enumerate(zip(windows.examples, rows)):
            starts = np.flatnonzero(ids == cls)
            parts = np.split(ids, starts[1:])
            received[document] += [part.tolist() for part in parts]
            assert starts[0] == 0 and all(part[-1] == sep for part in parts)
            expected = np.repeat(np.arange(len(parts)) % 2, [len(part) for part in parts])
            np.testing.assert_array_equal(segments[window, : len(ids)], expected)
        for number, document in enumerate(documents):
            pieces = [tokenizer.tokenize([text])[0].numpy().tolist() for text in document]
            expected = [[cls, *ids[: max_length - 2], sep] for ids in pieces]
            assert received[number] == expected
        values = np.arange(len(sentences.values), dtype=np.int32)
        labels = windows.labels(values).to_tensor(-100).numpy()
        np.testing.assert_array_equal(windows.marked_values(labels), values)
        # A window ends where the next sentence of its document would not fit.
        for window in np.flatnonzero(np.diff(windows.examples) == 0):
            first_of_next = np.flatnonzero(rows[window + 1] == sep)[0] + 1
            assert len(rows[window]) + first_of_next > max_length
