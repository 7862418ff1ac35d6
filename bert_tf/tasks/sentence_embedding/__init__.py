"""Sentence embedding: a vector for every text."""

from bert_tf.models.task_spec import VECTORS, TaskSpec

SPEC = TaskSpec(
    name="sentence_embedding",
    model="BertSentenceEncoder",
    architectures=("BertModel",),
    uses_pooler=False,
    serving="SentenceEmbeddingModule",
    distilled_as=VECTORS,
)
