"""Sentence embedding: a vector for every text."""

from bert_tf.json_schema import FLAG, integer, may_lack, optional
from bert_tf.models.task_spec import POOLING, VECTORS, TaskSpec

SPEC = TaskSpec(
    name="sentence_embedding",
    model="BertSentenceEncoder",
    architectures=("BertModel",),
    uses_pooler=False,
    serving="SentenceEmbeddingModule",
    distilled_as=VECTORS,
    options={
        "pooling": POOLING,
        "normalize": may_lack(FLAG),
        "whitening_size": optional(integer(least=1)),
    },
)
