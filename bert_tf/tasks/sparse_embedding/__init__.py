"""Sparse embedding (SPLADE): a weight for every piece of the vocabulary, most of them zero."""

from bert_tf.base.json_schema import integer, optional
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models import task_spec
from bert_tf.tasks import masked_lm

SPEC = task_spec.TaskSpec(
    name="sparse_embedding",
    model="BertSparseEncoder",
    architectures=("BertForMaskedLM",),
    backbone_options={"output_word_embeddings": True},
    decoded_by="terms",
    preprocessor="bert_tf.tasks.shared.preprocessors.VectorPreprocessor",
    examples=task_spec.Examples(texts=(1, ...)),
    heads={"masked_lm_head": masked_lm.HEAD},
    uses_pooler=False,
    serving=task_spec.Serving(
        "model.SparseEmbeddingModule",
        outputs={
            "term_count": "How many terms the text has; what follows is padding.",
            "term": "Pieces of the vocabulary, the largest weight first.",
            "term_id": "Their ids, the dimensions of the vector.",
            "term_weight": "Their weights.",
        },
        token_outputs={"vector": "A weight for each piece of the vocabulary."},
        details={"vector_size": "vector_size"},
    ),
    files="SparseEmbeddingFiles",
    distilled_as=task_spec.VECTORS,
    output_axes=(task_spec.WORD_AXIS,),
    reads_pairs=False,
    forms=(task_spec.SPARSE_EMBEDDINGS,),
    options={
        "pooling": task_spec.POOLING,
        "activation": task_spec.ACTIVATION,
        "max_active_dims": optional(integer(least=1)),
        **task_spec.PROMPT_OPTIONS,
    },
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"SpladeLoss": ".loss", "WeightedTerm": ".model"}
)
