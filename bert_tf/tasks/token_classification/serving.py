"""The signatures of `BertTokenClassifier`: entities, with text and offsets."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.token_classification.word_windows import (
    WORD_STARTS,
    pack_words,
    split_texts,
    tokenized_once,
    word_spans,
    words_of_texts,
)
from bert_tf.text import packing
from bert_tf.text.code_points import TextSlices


class TokenClassificationModule(ServingModule):
    """Maps text of any length to the spans that `tag` finds; where labels do not mean spans, each
    word is one."""

    def of_text(self, text):
        row, start, end, label = self.spans(text)
        ragged = tf.RaggedTensor.from_value_rowids(row, row, tf.size(text, tf.int64))

        def padded(values, default):  # [E] -> [B, most entities of a text]
            return ragged.with_values(values).to_tensor(default)

        return {
            "entity_count": tf.cast(ragged.row_lengths(), tf.int32),
            "entity_text": padded(TextSlices(text)(row, start, end), ""),
            "entity_label": padded(label, ""),
            "entity_start": padded(tf.cast(start, tf.int32), 0),
            "entity_end": padded(tf.cast(end, tf.int32), 0),
        }

    def spans(self, text: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns the spans of texts `[B]`.

        Returns:
            The text of each, its first character and the one after its last, int64 `[E]`, and its
            label, string `[E]`.
        """
        model = self.model
        tokenizer = model.tokenizer
        if model.preprocessor.splits_texts:
            words = split_texts(tokenizer.errors, text)
        else:
            pieces = tokenizer.tokenize_with_offsets(text, trim_offsets=True)
            words = words_of_texts(tokenizer, pieces, TextSlices(text))
        tokenized = tokenized_once(tokenizer, words.words, model.space_before_all_words)
        rows = words.words, words.row_splits, *tokenized
        ids, word_starts, _ = pack_words(tokenizer, *rows, self.max_length, keeps_empty=True)
        features = packing.pad(ids, tf.zeros_like(ids), tokenizer.pad_token_id, None, 1)
        shape = tf.shape(features["token_ids"], tf.int64)
        features[WORD_STARTS] = word_starts.to_tensor(False, shape=shape)

        tags = self.of_windows(features)  # [S, T]
        tags = tf.boolean_mask(tags, features[WORD_STARTS])  # [W]
        first, last, label = word_spans(model.labels, tags, words.texts)
        row = tf.gather(words.texts, first)
        return row, tf.gather(words.starts, first), tf.gather(words.ends, last), label
