"""The masked language model: it predicts hidden words and scores how probable a sentence is."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.layers.masked_lm_head import MaskedLMHead
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel
from bert_tf.ops.native import needs_static_shapes
from bert_tf.tasks.masked_lm.masked_word_model import MaskedWordModel, weighted
from bert_tf.tasks.masked_lm.preprocessor import TARGET_IDS, FilledMask, OneMaskRows, quote_texts
from bert_tf.training.traced_steps import predict_rows

REDUCTIONS = ("sum", "mean", "none")
# Texts whose logits `fill_mask` has in memory at a time.
TEXTS_FILLED_AT_ONCE = 512


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMaskedLM(TaskModel, MaskedWordModel):
    """BERT with its masked-LM head.

    `fit` takes raw texts, or pairs of them, and masks 15 % of the tokens, different ones in every
    epoch. For other masks, pass the dataset of `bert_tf.tasks.masked_lm.mask_texts`; for text
    files, that of `bert_tf.tasks.pretraining.pretraining_text`. `evaluate` and the validation in
    `fit` mask the same tokens every time. Only the masked positions go through the vocabulary
    matmul.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`.

    Call arguments:
        inputs: What the backbone takes, and `masked_positions` int32 `[B, P]`; without them the
            logits of all T tokens are computed. With `target_ids` int32 `[B, P]`, the outputs are
            the log-probabilities of these pieces, float32 `[B, P]`.

    Returns:
        Logits float32 `[B, P, V]`.

        `fit` takes the labels `masked_ids` int `[B, P]` and `masked_weights` float `[B, P]`, 0 for
        unused places; they are multiplied by the `sample_weight` of their example.

    Example:
        >>> model = bert_tf.BertMaskedLM.from_pretrained("bert-base-uncased/")
        >>> candidates = model.fill_mask("The capital of France is [MASK].", top_k=2)
        >>> [candidate.piece for candidate in candidates[0]]  # of the first [MASK], the best first
        [..., ...]
        >>> model.score(["He caught a cold.", "He caught a gold."]).shape  # log-likelihoods
        (2,)

    Reference: Devlin et al. 2019, section 3.1; Salazar et al. 2020 (arXiv 1910.14659) for `score`;
    Gururangan et al. 2020 (arXiv 2004.10964) for training on a domain.
    """

    def __init__(
        self, backbone: BertBackbone, tokenizer=None, max_length: int | None = None, **kwargs
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.masked_lm_head = self.built_layer(MaskedLMHead, backbone.config, name="masked_lm")
        self.built = True

    def call(self, inputs, training=False, weights=None, keeps_padding=False):
        """`weights` `[B, P]`: logits `[M, V]` for the M places whose weight is above zero.

        `keeps_padding`: see `MaskedLMHead`.
        """
        tokens = self.tokens_of(inputs)
        outputs = self.backbone(tokens, training=training, **self.backbone_options())
        positions = tokens.get("masked_positions")
        logits = self.word_logits(outputs, positions, weights, keeps_padding)
        if TARGET_IDS not in tokens:
            return logits
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(tokens[TARGET_IDS], logits)

    def forward(self, x, y, training):
        weights = None if needs_static_shapes() else y["masked_weights"]
        return self(x, training=training, weights=weights, keeps_padding=True)

    def loss_denominators(self, x, y, sample_weight):
        weights = tf.cast(y["masked_weights"], tf.float32)
        return {"words": tf.reduce_sum(weighted(weights, sample_weight))}

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        ids, weights = tf.cast(y["masked_ids"], tf.int32), tf.cast(y["masked_weights"], tf.float32)
        return self.word_loss(ids, weights, y_pred, totals["words"], sample_weight)

    def fill_mask(
        self,
        texts: Any,
        top_k: int = 5,
        token_budget: int | None = None,
        batch_size: int | None = None,
        verbose: int = 0,
    ) -> list:
        """Returns the most probable pieces for every `[MASK]` that is written in the texts.

        Args:
            texts: Raw text as in `fit`, single or in pairs; one string or one pair of strings.
            top_k: How many pieces.
            token_budget, batch_size, verbose: See `predict`.

        Returns:
            For each text, a list with an entry for every `[MASK]`: `top_k` `FilledMask`s, the best
            first. For one string or pair, its list.

        Raises:
            UserError: If a text has no `[MASK]`, or truncation removes one.
            DataError: If a text is missing or malformed.
        """
        preprocessor = self.preprocessor
        columns = preprocessor.read_examples(texts)
        preprocessor.require_masks(columns)
        size = self.tokenizer.vocab_size
        require(1 <= top_k <= size, f"must be in [1, {size}]", UserError, top_k=top_k)
        filled: list[list[list[FilledMask]]] = []
        for start in range(0, columns.num_rows, TEXTS_FILLED_AT_ONCE):
            part = columns.select(slice(start, start + TEXTS_FILLED_AT_ONCE))
            rows = preprocessor.encode(part)
            values = predict_rows(self, rows, batch_size, verbose, token_budget=token_budget)
            filled += preprocessor.candidates(values, rows, top_k)
        return filled[0] if columns.is_single else filled

    def score(
        self,
        sentences: str | list[str],
        reduction: str = "sum",
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> Any:
        """Returns pseudo-log-likelihoods: each token's log-probability while it alone is masked.

        If two sentences are about equally long, the more probable one has the higher sum.

        Args:
            sentences: A list of strings, or one.
            reduction: "sum" or "mean" over the tokens of a sentence, or "none" for each token.
            token_budget, verbose: See `predict`.

        Returns:
            float64 `[n]`, or a float for one string. With "none", a list of n arrays `[tokens]` in
            the order of `tokenizer.pieces`, or one array for one string.

        Raises:
            UserError: If a sentence has no token or more than the model takes.

        Reference: Salazar et al. 2020 (arXiv 1910.14659), section 2.
        """
        require_one_of("reduction", reduction, REDUCTIONS)
        self.preprocessor.require_mask_token()
        columns = self.preprocessor.read_examples(sentences)
        if len(columns) != 1:
            expected = "be a list of strings"
            raise user_error("Single sentences", expected, "pairs of texts. Score each by itself.")
        ids = self.tokenizer.tokenize(columns[0])
        lengths = ids.row_lengths().numpy()  # [n]
        for row, length in enumerate(lengths):
            if not 0 < length <= self.max_sequence_length - 2:
                raise UserError(
                    f"A sentence must have 1 to {self.max_sequence_length - 2} tokens. Received in "
                    f"row {row}: {length} tokens: {quote_texts((columns[0][row],))}"
                )
        rows = OneMaskRows(ids.values.numpy(), lengths, self.tokenizer)
        tokens = predict_rows(self, rows, verbose=verbose, token_budget=token_budget)
        tokens = tokens[:, 0].astype(np.float64)  # [R]
        scores = np.split(tokens, np.cumsum(lengths)[:-1])[: len(lengths)]
        if reduction != "none":
            scores = np.array([getattr(score, reduction)() for score in scores], np.float64)
        return scores[0] if columns.is_single else scores
