"""Multiple choice: which of several texts goes with a prompt."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.inputs.token_inputs import one_sequence_per_row
from bert_tf.models.backbone import BertBackbone
from bert_tf.tasks.multiple_choice.preprocessor import Choice
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(DenseHeadModel):
    """BERT with one score for each pair of a prompt and a choice.

    `fit`, `evaluate` and `predict` take raw text as a tuple `(prompts, choices)`: n strings and n
    lists of C strings, the choices.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`; the longer text of a pair is truncated.
        dropout: Dropout before the classifier; None means the rate of the configuration.

    Call arguments:
        inputs: What the backbone takes, each `[B, C, T]`; or strings `[B]` and `[B, C]`.

    Returns:
        Logits float32 `[B, C]`; for tokens `[B, T]`, one pair per row, `[B]`.

    Raises:
        UserError: See `TaskModel`.

    Example:
        >>> model = bert_tf.BertMultipleChoice.from_pretrained("bert-base/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> prompts, choices = ["She fills the kettle."], [["She boils it.", "It flies off."]]
        >>> model.fit((prompts, choices), [0])
        >>> model.predict((prompts, choices)).shape
        (1, 2)
        >>> model.choose(prompts[0], choices[0]).index in (0, 1)
        True

    Reference: Devlin et al. 2019, section 4.4; Zellers et al. 2018 (SWAG, arXiv 1808.05326).
    """

    def __init__(
        self,
        backbone: BertBackbone,
        dropout: float | None = None,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.add_dropout(dropout)
        self.classifier = self.dense_head(1, example_shape=(2, 3))
        self.built = True

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        ids = tokens["token_ids"]
        pairs = one_sequence_per_row(tokens)  # [B, C, T] -> [B * C, T]
        pooled = self.backbone(pairs, training=training)["pooled_output"]  # [B * C, H]
        scores = self.classifier(self.dropout_layer(pooled, training=training))  # [B * C, 1]
        return tf.reshape(tf.cast(scores, tf.float32), keras.ops.shape(ids)[:-1])  # -> [B, C]

    def choose(
        self,
        prompts: str | Sequence[str],
        choices: Sequence[str] | Sequence[Sequence[str]],
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> Choice | list[Choice]:
        """Returns the most probable choice for each prompt.

        Args:
            prompts: n prompts, or one.
            choices: The choices of each, the same number for all.
            batch_size: The maximum number of pairs of a batch.
            token_budget, verbose: See `predict`.

        Returns:
            A `Choice` for each prompt, or one `Choice` for one prompt.

        Raises:
            UserError: If there is no tokenizer, or a prompt does not have its choices.
            DataError: If a text is missing or malformed.
        """
        return self.predict_decoded((prompts, choices), batch_size, token_budget, verbose)
