"""Data functions that several tasks share: batches by tokens, windows, masks, tables, augmentation.

Names are imported when they are first used, because the processes that create pre-training examples
import this package without TensorFlow.
"""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "batch_by_tokens": ".token_budget",
        "key_sentences": ".long_texts",
        "mask_tokens": ".masking",
        "pack_rows": ".row_packing",
        "padding_share": ".row_packing",
        "token_batches": ".token_budget",
    },
    moved={
        "ClassificationTask": "bert_tf.tasks.text_classification",
        "GoldAnswer": "bert_tf.tasks.question_answering",
        "Span": "bert_tf.tasks.token_classification",
        "SquadExample": "bert_tf.tasks.question_answering",
        "TASKS": "bert_tf.tasks.text_classification",
        "TaggedSentence": "bert_tf.tasks.token_classification",
        "TextExample": "bert_tf.tasks.text_classification",
        "convert_tags": "bert_tf.tasks.token_classification",
        "create_examples": "bert_tf.tasks.pretraining",
        "create_pretraining_data": "bert_tf.tasks.pretraining",
        "mask_texts": "bert_tf.tasks.masked_lm",
        "read_answers": "bert_tf.tasks.question_answering",
        "read_conll": "bert_tf.tasks.token_classification",
        "read_squad": "bert_tf.tasks.question_answering",
        "read_tag_predictions": "bert_tf.tasks.token_classification",
        "read_word_tag": "bert_tf.tasks.token_classification",
        "spans_of_tags": "bert_tf.tasks.token_classification",
        "table_task": "bert_tf.tasks.text_classification",
        "tags_of_spans": "bert_tf.tasks.token_classification",
        "xnli_task": "bert_tf.tasks.text_classification",
    },
)
