"""Feature extraction: the hidden states of every token."""

from bert_tf.models.task_spec import TaskSpec

SPEC = TaskSpec(
    name="feature_extraction",
    model="BertFeatureExtractor",
    architectures=("BertModel",),
    uses_pooler=False,
)
