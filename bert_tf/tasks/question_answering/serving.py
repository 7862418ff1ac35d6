"""The signatures of `BertQuestionAnswerer`: spans of the context, with text and offsets."""

import tensorflow as tf

from bert_tf.models.bounded_batches import in_batches
from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.question_answering.graph_answers import (
    graph_answers,
    graph_candidates,
    null_scores,
)
from bert_tf.tasks.question_answering.graph_windows import graph_windows


class QuestionAnsweringModule(ServingModule):
    """A question and a context of any length to the answer: what `answer` and `select` give."""

    texts = {
        "question": "The question, UTF-8.",
        "context": "The text that the answer is looked for in, UTF-8, of any length.",
    }
    outputs = {
        "answer": "The answer, a piece of the context; empty where it has none.",
        "start": "The answer's first character in the context, in code points.",
        "end": "The one behind its last.",
        "score": "Its probability among the n best.",
        "score_difference": "How much better no answer is than the best span.",
        "n_best_count": "How many of the n best there are; what is behind is padding.",
        "n_best_text": "The n best answers, the best first.",
        "n_best_start": "Their first characters.",
        "n_best_end": "The ones behind their last.",
        "n_best_score": "Their probabilities.",
    }
    token_outputs = {
        "start_logits": "Logits of the answer's first token.",
        "end_logits": "Logits of its last token.",
    }

    def of_tokens(self, tokens):
        start, end = tf.unstack(self.model(tokens, training=False), num=2, axis=1)  # [B, T]
        return {"start_logits": start, "end_logits": end}

    def of_text(self, question, context):
        model, tokenizer = self.model, self.model.tokenizer
        pieces = tokenizer.tokenize_with_offsets(context)
        windows = graph_windows(
            tokenizer, tokenizer.tokenize(question), pieces.ids, **model.window_lengths()
        )
        logits = in_batches(lambda tokens: model(tokens, training=False), windows.tokens)
        candidates = graph_candidates(
            windows,
            logits,
            context,
            pieces.char_starts,
            pieces.char_ends,
            model.n_best_size,
            model.max_answer_length,
        )
        return graph_answers(
            candidates,
            null_scores(windows, logits),
            model.n_best_size,
            model.null_score_diff_threshold if model.allow_no_answer else None,
        )

    def details(self):
        return {
            "allow_no_answer": self.model.allow_no_answer,
            "null_score_diff_threshold": self.model.null_score_diff_threshold,
            "n_best_size": self.model.n_best_size,
            **self.model.window_lengths(),
        }
