"""What users pass becomes batches: containers, columns, labels, token budgets, epochs, replicas.

Names are imported when they are first used, because the processes that create pre-training examples
import this package without TensorFlow.
"""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ParquetRows": ".tables.parquet_files",
        "TOKEN_BUDGET": ".batches",
        "batch_by_tokens": ".token_budget",
        "key_sentences": ".long_texts",
        "mask_tokens": ".masking",
        "pack_rows": ".row_packing",
        "padding_share": ".row_packing",
        "require_unicode": ".tables.table_files",
        "sorted_batches": ".batches",
        "token_batches": ".batches",
    },
)
