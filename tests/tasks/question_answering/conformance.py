"""What the conformance tests need to know of question answering."""

import re

import numpy as np

import bert_tf
from tests.conformance.task import NO_TEXT_BATCHES, TEXTS, Task, encoded, pieces

CONTEXTS = ["the good film", "film. a bad film", "a b c d", "the e", "bad good bad", "the film."]
ANSWERS = [("good film", 4), ("film", 0), ("b", 2), ("e", 4), ("bad good bad", 0), (".", 8)]
# Where these begin and end among the pieces of their contexts.
ANSWER_PIECES = [(1, 2), (0, 0), (1, 1), (1, 1), (0, 2), (2, 2)]


def _answers_by_hand(logits):
    """The best span of each context, of all spans."""
    found = []
    for text, context, (starts, ends) in zip(TEXTS, CONTEXTS, np.asarray(logits)):
        first = len(pieces(text)) + 2  # [CLS] question [SEP]
        words = list(re.finditer(r"\w+|[^\w\s]", context))
        spans = [(i, j) for i in range(len(words)) for j in range(i, len(words))]
        i, j = max(spans, key=lambda span: starts[first + span[0]] + ends[first + span[1]])
        start, end = words[i].start(), words[j].end()
        found.append((context[start:end], start, end))
    return found


def _answers_served(outputs):
    columns = [outputs[name].numpy().tolist() for name in ("answer", "start", "end")]
    return [(answer.decode(), start, end) for answer, start, end in zip(*columns)]


def _answer_positions():
    """int32 `[B, 2]`: the first and the last token of each answer."""
    offsets = np.array([len(pieces(text)) + 2 for text in TEXTS])
    return (np.array(ANSWER_PIECES) + offsets[:, None]).astype(np.int32)


TASKS = {
    "question answering": Task(
        bert_tf.BertQuestionAnswerer,
        encoded(TEXTS, CONTEXTS),
        {"max_length": 20, "max_query_length": 8, "doc_stride": 4},
        (TEXTS, CONTEXTS),
        ANSWERS,
        _answer_positions(),
        answers=lambda model, asked, **batching: [
            tuple(answer)[:3] for answer in model.answer(*asked, **batching)
        ],
        by_hand=_answers_by_hand,
        signature=("question", "context"),
        served=_answers_served,
        lacks=NO_TEXT_BATCHES,
        saved={
            "allow_no_answer": True,
            "null_score_diff_threshold": 0.5,
            "n_best_size": 5,
            "max_answer_length": 3,
        },
    )
}
