"""Sentence embedding: a vector for every text."""

from bert_tf.base.json_schema import FLAG, OBJECT, integer, list_of, may_lack, optional
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models import task_spec

SPEC = task_spec.TaskSpec(
    name="sentence_embedding",
    model="BertSentenceEncoder",
    architectures=("BertModel",),
    decoded_by="encode",
    preprocessor="SentenceEmbeddingPreprocessor",
    examples=task_spec.Examples(texts=(1, ...)),
    uses_pooler=False,
    serving=task_spec.Serving(
        "preprocessor.SentenceEmbeddingModule",
        outputs={"vector": "The text's vector."},
        details={"vector_size": "vector_size", "normalized": "normalize"},
    ),
    files="module_files.SentenceEmbeddingFiles",
    distilled_as=task_spec.VECTORS,
    output_axes=(task_spec.VECTOR_AXIS,),
    forms=(task_spec.EMBEDDINGS,),
    answers={"encode": task_spec.Answers("encode")},
    options={
        "pooling": task_spec.POOLING,
        "projection": optional(list_of(OBJECT)),  # `VectorProjection` checks it
        "layer_start": optional(integer(least=0)),
        "normalize": may_lack(FLAG),
        "whitening_size": optional(integer(least=1)),
        "truncate_dim": optional(integer(least=1)),
        **task_spec.PROMPT_OPTIONS,
    },
    built_with=("pooling", "layer_start", "whitening_size", "projection"),
)
_EVALUATORS = (
    "BitextMiningScores",
    "DataSetScores",
    "PairScores",
    "RerankingScores",
    "RetrievalScores",
    "TranslationScores",
    "TripletScores",
)
__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"EncodingPool": ".encoding_pool", **dict.fromkeys(_EVALUATORS, ".evaluators")}
)
