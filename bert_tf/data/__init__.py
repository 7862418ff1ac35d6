"""Readers of data files, and the tf.data pipelines over them.

Names are loaded when they are first used: the processes that make pre-training examples import this
package without TensorFlow. No module may have the name of one, for it would take its place.
"""

import importlib

_PUBLIC = {
    "Span": "tag_schemes",
    "TaggedSentence": "tagged_text",
    "convert_tags": "tag_schemes",
    "read_conll": "tagged_text",
    "read_word_tag": "tagged_text",
    "spans_of_tags": "tag_schemes",
    "tags_of_spans": "tag_schemes",
    "GoldAnswer": "squad",
    "SquadExample": "squad",
    "TASKS": "classification_tasks",
    "ClassificationTask": "classification_task",
    "TextExample": "classification_task",
    "table_task": "classification_tasks",
    "xnli_task": "classification_tasks",
    "create_examples": "pretraining_examples",
    "create_pretraining_data": "pretraining_data",
    "mask_tokens": "masking",
    "question_windows": "context_windows",
    "read_answers": "answer_predictions",
    "read_squad": "squad",
    "read_tag_predictions": "tagged_text",
    "select_answers": "answer_selection",
    "training_windows": "context_windows",
    "mask_texts": "masked_text",
    "key_sentences": "long_texts",
    "pack_rows": "row_packing",
    "padding_share": "row_packing",
    "token_batches": "token_budget",
    "batch_by_tokens": "token_budget",
}

__all__ = list(_PUBLIC)


def __getattr__(name):
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"bert_tf.data.{_PUBLIC[name]}"), name)
    raise AttributeError(
        f"module 'bert_tf.data' has no attribute {name!r}. Public names: {__all__}"
    )


def __dir__():
    return sorted(__all__)
