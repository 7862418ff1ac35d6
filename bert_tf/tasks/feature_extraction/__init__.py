"""Feature extraction: the hidden states of every token."""

from bert_tf.base.json_schema import MOST_INTEGER, integer, list_of, may_lack, text
from bert_tf.models.task_spec import TaskSpec

SPEC = TaskSpec(
    name="feature_extraction",
    model="BertFeatureExtractor",
    architectures=("BertModel",),
    backbone_options={"output_hidden_states": True},
    decoded_by="extract",
    token_axis=1,
    uses_pooler=False,
    options={
        "layer_indices": may_lack(list_of(integer(least=-MOST_INTEGER), least=1, most=10_000)),
        "combine": may_lack(text()),
    },
)
