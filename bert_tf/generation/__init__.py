"""Generation: decodes sequences of tokens from a model that gives the logits of the next token.

`generate` is a loop in the TensorFlow graph: greedy decoding, sampling, beam search or contrastive
search, as the `GenerationConfig` says. It is traced once, can be exported with stock ops only, and
XLA compiles it where the shapes are static. The samplers of keras-hub are not used because their
beam search keeps extending finished sequences and has no length penalty, their random numbers for a
row depend on the other rows, and no sampler limits repetitions.

Glossary: `B` batch, `K` beams or sampled sequences per row of the batch, `n = B * K` sequences,
`S` maximum length with the start token, `V` vocabulary, `N` heads, `D` head size.
"""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "GeneratedTokens": ".decoding",
        "GenerationConfig": ".generation_config",
        "generate": ".decoding",
    },
)
