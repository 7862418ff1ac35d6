"""Data functions that several tasks share: batches by tokens, windows, masks, tables, augmentation.

Names are imported when they are first used, because the processes that create pre-training examples
import this package without TensorFlow.
"""

from bert_tf.lazy_names import lazy_names

# The tasks of the names that this package had in the previous release.
_MOVED = {
    "masked_lm": "mask_texts",
    "pretraining": "create_examples create_pretraining_data",
    "question_answering": "GoldAnswer SquadExample read_answers read_squad",
    "text_classification": "ClassificationTask TASKS TextExample table_task xnli_task",
    "token_classification": "Span TaggedSentence convert_tags read_conll read_tag_predictions "
    "read_word_tag spans_of_tags tags_of_spans",
}
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
        name: f"bert_tf.tasks.{task}" for task, names in _MOVED.items() for name in names.split()
    },
)
