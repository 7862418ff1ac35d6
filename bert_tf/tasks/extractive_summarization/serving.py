"""The signatures of `BertSentenceExtractor`: summaries, with their sentences."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.extractive_summarization.preprocessor import pack_sentences
from bert_tf.tasks.extractive_summarization.selection import join_sentences, select_sentences
from bert_tf.text import packing


class ExtractiveSummarizationModule(ServingModule):
    """Maps text of any length to its summary: what `summarize` gives."""

    def of_text(self, text):
        model, tokenizer = self.model, self.model.tokenizer
        sentences = model.preprocessor.sentences_in_graph(text)
        pieces = tokenizer.tokenize(sentences.values)
        packed = pack_sentences(
            tokenizer, pieces, tf.cast(sentences.row_splits, tf.int64), self.max_length
        )
        tokens = packing.pad(*packed[:2], tokenizer.pad_token_id, None, 1)
        logits = self.of_windows(tokens)  # [W, T]
        starts = packed.sentence_starts.to_tensor(False, shape=tf.shape(logits))
        logits = tf.boolean_mask(logits, starts)  # [S]
        options = model.num_sentences, model.trigram_blocking
        selected = sentences.with_values(select_sentences(sentences, logits, *options))
        numbers = tf.ragged.range(sentences.row_lengths(), row_splits_dtype=tf.int64)

        def of_selected(values):  # [B, (sentences)] -> [B, (selected sentences)]
            return tf.ragged.boolean_mask(values, selected)

        summary = of_selected(sentences)
        scores = of_selected(sentences.with_values(tf.sigmoid(logits)))
        return {
            "summary": join_sentences(summary),
            "sentence_count": tf.cast(summary.row_lengths(), tf.int32),
            "sentence_text": summary.to_tensor(""),
            "sentence_number": tf.cast(of_selected(numbers).to_tensor(), tf.int32),
            "sentence_score": scores.to_tensor(),
        }
