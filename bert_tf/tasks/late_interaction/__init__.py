"""Late interaction: a vector for every token, compared token by token (ColBERT)."""

from bert_tf.base.json_schema import FLAG, integer, may_lack, optional, text
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import RERANK, TaskInput, TaskSpec, layer_head
from bert_tf.models.weight_rows import PROJECTION

SPEC = TaskSpec(
    name="late_interaction",
    model="BertLateInteractionEncoder",
    architectures=("HF_ColBERT",),  # of stanford-futuredata/ColBERT
    inputs={"is_query": TaskInput("bool")},
    heads={"projection": layer_head("token_projection", PROJECTION, "linear", "linear")},
    uses_pooler=False,
    serving="LateInteractionModule",
    files="LateInteractionFiles",
    reads_pairs=False,
    forms=(RERANK,),
    options={
        "dim": may_lack(integer(least=1)),
        "query_max_length": may_lack(integer(least=3)),
        "query_marker": optional(text()),
        "document_marker": optional(text()),
        "query_augmentation": may_lack(FLAG),
        "attend_to_mask_tokens": may_lack(FLAG),
        "mask_punctuation": may_lack(FLAG),
    },
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
