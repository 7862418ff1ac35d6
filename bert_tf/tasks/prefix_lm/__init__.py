"""Prefix language models: one BERT that reads a source and writes a target."""

from bert_tf.models.task_spec import GENERATION_CONFIG, MAX_LENGTH, TaskSpec
from bert_tf.tasks import masked_lm

SPEC = TaskSpec(
    name="prefix_lm",
    model="BertPrefixLM",
    architectures=("BertForPrefixLM",),  # transformers has no such class
    heads={"masked_lm_head": masked_lm.HEAD},
    uses_pooler=False,
    serving="PrefixLMModule",
    options={"max_target_length": MAX_LENGTH, "generation_config": GENERATION_CONFIG},
)
