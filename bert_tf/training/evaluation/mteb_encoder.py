"""A `BertSentenceEncoder` as a model of mteb, the Massive Text Embedding Benchmark."""

from typing import Any

import numpy as np

from bert_tf.base.optional_packages import require_package

_PURPOSE = "the Massive Text Embedding Benchmark"


class MtebEncoder:
    """What `mteb.evaluate` takes as a model, an `mteb.EncoderProtocol`.

    `mteb.evaluate(MtebEncoder(encoder), mteb.get_tasks(tasks=["NFCorpus"]))` downloads the data of
    the task and scores the encoder.

    A prompt of the encoder is used if its name is that of the task, of the task's type, or "query"
    or "document" where the text is one, also joined by a hyphen, as mteb defines.

    Args:
        encoder: The `BertSentenceEncoder`.
        name: The model's name in results: an organization and a model, separated by "/".
        revision: Its revision in results.
        token_budget: See `encode`.

    Raises:
        UserError: If mteb is missing.

    Reference: Muennighoff et al. 2022 (arXiv 2210.07316).
    """

    def __init__(
        self,
        encoder: Any,
        name: str = "bert_tf/encoder",
        revision: str = "1",
        token_budget: int | None = None,
    ):
        models = require_package("mteb.models.model_meta", _PURPOSE)
        self.encoder = encoder
        self.token_budget = token_budget
        self.mteb_model_meta = models.ModelMeta.create_empty(
            {
                "name": name,
                "revision": revision,
                "embed_dim": encoder.vector_size,
                "max_tokens": encoder.max_sequence_length,
                "n_parameters": encoder.count_params(),
                "similarity_fn_name": models.ScoringFunction.COSINE,
                "framework": ["TensorFlow"],
            }
        )

    def encode(self, inputs, *, task_metadata, prompt_type=None, **unused) -> np.ndarray:
        """Returns the vectors of mteb's batches `{"text": [...]}`, float32 `[n, D]`."""
        prompts = require_package("mteb.models.abs_encoder", _PURPOSE)
        return self.encoder.encode(
            [text for batch in inputs for text in batch["text"]],
            prompt_name=prompts.get_prompt_name(self.encoder.prompts, task_metadata, prompt_type),
            token_budget=self.token_budget,
        )

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Returns the cosines of vectors `[n, D]` and `[m, D]`, as mteb computes them: `[n, m]`."""
        return require_package("mteb.similarity_functions", _PURPOSE).cos_sim(
            embeddings1, embeddings2
        )

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Returns the cosines of vectors `[n, D]` and `[n, D]`, row by row: `[n]`."""
        functions = require_package("mteb.similarity_functions", _PURPOSE)
        return functions.pairwise_cos_sim(embeddings1, embeddings2)
