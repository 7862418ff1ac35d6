"""The signatures of `BertQuestionAnswerer`: spans of the context, with text and offsets."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.question_answering.answers import Selection
from bert_tf.tasks.question_answering.windows import pack_windows
from bert_tf.text import packing


class QuestionAnsweringModule(ServingModule):
    """Maps a question and a context of any length to the answer, as `answer` and `select` do."""

    def of_tokens(self, tokens):
        start, end = tf.unstack(self.compute(tokens), num=2, axis=1)  # [B, T]
        return {"start_logits": start, "end_logits": end}

    def of_text(self, question, context):
        model, preprocessor = self.model, self.model.preprocessor
        selection = self.selection(question, context)
        n_best, best = selection.n_best, selection.best
        is_null = selection.is_null(preprocessor.threshold)
        score = tf.where(is_null, selection.null_probability, selection.best_probability)
        size = model.n_best_size + int(model.allow_no_answer)

        rows = tf.size(question, tf.int64)
        ragged = tf.RaggedTensor.from_value_rowids(n_best.example, n_best.example, rows)

        def padded(values, default=0):  # [C] -> [B, N]
            return ragged.with_values(values).to_tensor(default, shape=[None, size])

        return {
            "answer": tf.where(is_null, "", best.text),
            "start": tf.where(is_null, 0, tf.cast(best.start, tf.int32)),
            "end": tf.where(is_null, 0, tf.cast(best.end, tf.int32)),
            "score": tf.cast(score, tf.float32),
            "score_difference": tf.cast(selection.score_difference, tf.float32),
            "n_best_count": tf.cast(ragged.row_lengths(), tf.int32),
            "n_best_text": padded(n_best.text, ""),
            "n_best_start": tf.cast(padded(n_best.start), tf.int32),
            "n_best_end": tf.cast(padded(n_best.end), tf.int32),
            "n_best_score": tf.cast(padded(selection.probability), tf.float32),
        }

    def selection(self, question: tf.Tensor, context: tf.Tensor) -> Selection:
        """Returns the answers to questions `[B]`, each of which has a context, strings `[B]`."""
        model, tokenizer = self.model, self.model.tokenizer
        pieces = tokenizer.tokenize_with_offsets(context, trim_offsets=True)
        questions = tokenizer.tokenize(question)
        windows = pack_windows(tokenizer, questions, pieces.ids, **model.window_lengths())
        ids = windows.token_ids, windows.segment_ids
        logits = self.of_windows(packing.pad(*ids, tokenizer.pad_token_id, None, 1))
        offsets = pieces.char_starts, pieces.char_ends
        return model.preprocessor.select_in_graph(logits, windows, context, *offsets)
