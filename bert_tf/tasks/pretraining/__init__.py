"""Pre-training: masked words and next sentences, from text files to a model."""

from bert_tf.base.json_schema import may_lack, text
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import TaskSpec
from bert_tf.tasks import masked_lm, next_sentence_prediction

SPEC = TaskSpec(
    name="pretraining",
    model="BertPretrainer",
    architectures=("BertForPreTraining",),
    preprocessor=None,
    labels=masked_lm.LABELS,
    inputs=masked_lm.SPEC.inputs,
    heads={"masked_lm_head": masked_lm.HEAD, "next_sentence": next_sentence_prediction.HEAD},
    options={"objective": may_lack(text())},
    built_with=("objective",),
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "create_pretraining_data": ".create_data",
        **dict.fromkeys(
            ("Chunk", "ChunkedCorpus", "DEFAULT_CHUNK_BYTES", "DocumentCutter"), ".document_chunks"
        ),
        **dict.fromkeys(("ExampleOptions", "MaskingVocabulary", "create_examples"), ".examples"),
        **dict.fromkeys(
            ("PretrainingSummary", "TokenizedChunk", "make_records", "tokenize_documents"),
            ".chunk_examples",
        ),
        "pretraining_records": ".records",
        "pretraining_text": ".text",
    },
)
