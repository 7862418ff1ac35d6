"""Prefix language models: one BERT that reads a source and writes a target."""

from bert_tf.models.task_spec import GENERATION_CONFIG, MAX_LENGTH, NEXT_WORDS, TaskSpec
from bert_tf.tasks import masked_lm
from bert_tf.tasks.shared import GENERATED_TEXT, SOURCE_AND_TARGET

SPEC = TaskSpec(
    name="prefix_lm",
    model="BertPrefixLM",
    architectures=("BertForPrefixLM",),  # transformers has no such class
    packs_under_xla=False,
    backbone_options={"causal": True, "output_word_embeddings": True},
    decoded_by="generate",
    preprocessor="PrefixLMPreprocessor",
    examples=SOURCE_AND_TARGET,
    labels=NEXT_WORDS,
    heads={"masked_lm_head": masked_lm.HEAD},
    uses_pooler=False,
    serving=GENERATED_TEXT,
    options={"max_target_length": MAX_LENGTH, "generation_config": GENERATION_CONFIG},
)
