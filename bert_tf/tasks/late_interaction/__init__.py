"""Late interaction: a vector for every token, compared token by token (ColBERT)."""

from bert_tf.base.json_schema import FLAG, integer, may_lack, optional, text
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models import task_spec
from bert_tf.models.weight_rows import PROJECTION

_VECTORS = (
    {"text": "The text, UTF-8."},
    {
        "vector_count": "How many vectors the text has; what follows is padding.",
        "vectors": "A vector for each token that counts.",
    },
)
SPEC = task_spec.TaskSpec(
    name="late_interaction",
    model="BertLateInteractionEncoder",
    architectures=("HF_ColBERT",),  # of stanford-futuredata/ColBERT
    packs_under_xla=False,
    decoded_by="score_pairs",
    preprocessor="LateInteractionPreprocessor",
    examples=task_spec.Examples(
        texts=(1, ...),
        form="Pass (queries, documents) with one document or more for each query, such as "
        "(queries, positives, negatives) to train; for vectors call `encode_queries` or "
        "`encode_documents`.",
    ),
    labels=task_spec.Labels(no_class_weights="labels are scores"),
    inputs={"is_query": task_spec.TaskInput("bool")},
    heads={"projection": task_spec.layer_head("token_projection", PROJECTION, "linear", "linear")},
    uses_pooler=False,
    serving=task_spec.Serving(
        "preprocessor.LateInteractionModule",
        texts={"query": "The query, UTF-8.", "document": "The document, UTF-8."},
        outputs={
            "score": "How well the document fits the query.",
            "logits": "The same, as the model computes it.",
        },
        token_outputs={"logits": "How well each document of a row fits the query, its first text."},
        has_sequences=True,
        further={"queries": _VECTORS, "documents": _VECTORS},
        details={"vector_size": "dim"},
    ),
    files="LateInteractionFiles",
    reads_pairs=False,
    forms=(task_spec.RERANK, task_spec.TOKEN_EMBEDDINGS),
    options={
        "dim": may_lack(integer(least=1)),
        "query_max_length": may_lack(integer(least=3)),
        "query_marker": optional(text()),
        "document_marker": optional(text()),
        "query_augmentation": may_lack(FLAG),
        "attend_to_mask_tokens": may_lack(FLAG),
        "mask_punctuation": may_lack(FLAG),
    },
    built_with=("dim",),
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "DocumentRankingLoss": ".losses",
        "TokenVectors": ".token_vectors",
        "max_sim_scores": ".token_vectors",
        "require_comparable": ".token_vectors",
    },
)
