"""A user's task whose model has an input of its own, as CONTRIBUTING.md describes it."""

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from tests.conformance.task import CLASSES, CONFIG, TEXTS, assert_same, tokenizer


class CountedRows:
    """Rows of tokens with the number of words of each text."""

    def __init__(self, rows, columns):
        self._rows = rows
        self._counts = tf.constant([len(text.split()) for text in columns[0]], tf.float32)

    def __getattr__(self, name):
        return getattr(self._rows, name)

    def __len__(self):
        return len(self._rows)

    def batch(self, rows, length=None):
        return {**self._rows.batch(rows, length), "num_words": tf.gather(self._counts, rows)}


class CountingPreprocessor(Preprocessor):
    texts_per_example = (1,)

    def example_rows(self, columns):
        return CountedRows(super().example_rows(columns), columns)

    def rows(self, columns, window_stride=None):
        return CountedRows(super().rows(columns, window_stride), columns)

    def tokens_of(self, inputs):
        (texts,) = self.tensor_columns(inputs)
        counts = tf.cast(tf.strings.split(texts).row_lengths(), tf.float32)  # [B]
        return {**super().tokens_of(inputs), "num_words": counts}


class CountingModel(DenseHeadModel):
    """Two classes, by the pooled vector plus the number of words."""

    preprocessor_class = CountingPreprocessor

    def __init__(self, backbone, tokenizer=None, max_length=None, **kwargs):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.classifier = self.dense_head(2)
        self.build()

    def call(self, inputs, training=False):
        tokens = dict(self.tokens_of(inputs))
        num_words = tokens.pop("num_words", None)  # [B], or None
        outputs = self.backbone(tokens, training=training)
        return self.head({**outputs, "num_words": num_words}, tokens, training=training)

    def head(self, outputs, tokens, training=False):
        logits = tf.cast(self.classifier(outputs["pooled_output"]), tf.float32)
        counts = outputs["num_words"]
        return logits if counts is None else logits + counts[:, tf.newaxis]


def test_task_with_an_input_of_its_own():
    model = CountingModel(bert_tf.BertBackbone(CONFIG), tokenizer())
    model.compile("sgd", run_eagerly=True, gradient_accumulation_steps=2)
    counts = np.array([len(text.split()) for text in TEXTS], np.float32)
    tokens = dict(model.tokenize(TEXTS))
    plain = np.asarray(model(tokens))
    expected = plain + counts[:, np.newaxis]
    assert_same(model(tf.constant(TEXTS)), expected)
    assert_same(model({**tokens, "num_words": counts}), expected)
    assert_same(model.predict(TEXTS, verbose=0), expected)
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(4)
    assert_same(model.predict(dataset, verbose=0), expected)
    for x in (TEXTS, {**tokens, "num_words": counts}):
        model.fit(x, CLASSES, verbose=0)


def test_input_that_reaches_the_backbone():
    model = bert_tf.BertTextClassifier(bert_tf.BertBackbone(CONFIG), tokenizer=tokenizer())
    with pytest.raises(UserError, match="Received: num_words. .*take them out in its `call`"):
        model({**model.tokenize(TEXTS), "num_words": np.ones(len(TEXTS))})
