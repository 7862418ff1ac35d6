"""What `BertMultipleChoice` reads and answers: prompts with their choices.

Glossary: `n` examples, `C` choices of each.
"""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, user_error
from bert_tf.inputs.columns import (
    TextColumns,
    is_container,
    is_text,
    plain_rows,
    refuse_missing,
    shown,
    text_column,
)
from bert_tf.inputs.labels import class_ids
from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.multiple_choice import FORM
from bert_tf.tasks.shared.preprocessors import PairsPreprocessor
from bert_tf.training.evaluation.probabilities import softmax


class Choice(NamedTuple):
    """The choice that goes with a prompt.

    Attributes:
        index, text: Its number, from 0, and the choice itself.
        probability: Its probability among the choices.

    Example:
        >>> Choice(1, "It flies off.", 0.75).text
        'It flies off.'
    """

    index: int
    text: str
    probability: float


@keras.saving.register_keras_serializable(package="bert_tf")
class MultipleChoicePreprocessor(PairsPreprocessor):
    """Maps prompts and choices to pairs of tokens, logits to choices."""

    def read_columns(self, x):
        """Returns prompts `[n]` and choices `[n, C]` as arrays of strings.

        Raises:
            DataError: If a text is missing or malformed.
            UserError: If an example is not a prompt with as many choices as the others, at least
                two.
        """
        if isinstance(x, TextColumns):
            return x
        if not isinstance(x, tuple):
            rows = list(plain_rows(x))
            for number, row in enumerate(rows):
                if isinstance(row, tuple) and row and all(map(is_text, row)):
                    rows[number] = (row[0], row[1:])
            if not all(isinstance(row, tuple) and len(row) == 2 for row in rows):
                raise UserError(f"{FORM} Received: {type(x).__name__}")
            x = tuple(map(list, zip(*rows))) or ([], [])  # pairs of a prompt and its choices
        if len(x) != 2 or is_text(x[1]):
            raise UserError(f"{FORM} Received: {shown(x)}")
        prompts = text_column(x[0], self.text_errors, "prompts")
        lists = [x[1]] if is_text(x[0]) else plain_rows(x[1], "choices")
        refuse_missing(lists, "choices")
        rows = []
        for row, members in enumerate(lists):
            if is_text(members):
                raise user_error("`choices`", f"have a list of strings in row {row}", "a string")
            rows.append(text_column(members, self.text_errors, f"choices of row {row}"))
            if len(rows[row]) != len(rows[0]) or len(rows[0]) < 2:
                raise UserError(
                    "`choices` must have at least two choices, and the same number in every row. "
                    f"Received in row {row}: {len(rows[row])}, in row 0: {len(rows[0])}"
                )
        if len(rows) != len(prompts):
            expected = "have a list for every prompt"
            raise user_error("`choices`", expected, f"{len(prompts)} prompts, {len(rows)} lists")
        columns = TextColumns((prompts, np.array(rows or np.empty([0, 0]), object)))  # [n], [n, C]
        columns.is_single = is_text(x[0])
        return columns

    def targets(self, y, x):
        """Returns the number of the right choice for every prompt."""
        if not is_container(y):
            return y
        count = None
        if isinstance(x, TextColumns):
            count = x[1].shape[1]
        elif isinstance(x, dict):
            count = np.shape(x["token_ids"])[1]
        return class_ids(y, None, count, keep_rows=not self.has_sparse_labels)

    def tokenize(self, *texts):
        """Returns prompts `[B]` and choices `[B, C]` as the model takes them, `[B, C, T]`.

        Raises:
            UserError: If the choices are not of that shape, or there is no tokenizer.
        """
        choices = tf.convert_to_tensor(texts[-1])
        if len(texts) != 2 or choices.shape.rank != 2:
            shapes = [tf.convert_to_tensor(column).shape for column in texts]
            raise UserError(f"{FORM} Received: strings of the shapes {shapes}")
        return self.pair_tokens(texts[0], choices)

    def decode(self, values, rows, columns):
        """Returns a `Choice` for each prompt."""
        probabilities = softmax(values.reshape(columns[1].shape)) if len(values) else ()
        best = [int(shares.argmax()) for shares in probabilities]
        return [
            Choice(index, choices[index].decode("utf-8", "replace"), float(shares[index]))
            for index, choices, shares in zip(best, columns[1], probabilities)
        ]


class MultipleChoiceModule(ServingModule):
    """Maps a prompt and several choices to the best choice and the probability of each.

    Examples with fewer choices than others are filled up with empty choices, or with padding. These
    are never chosen, and have probability 0 and a logit of minus infinity.
    """

    def of_text(self, prompt, choices):
        logits = self.model(self.model.tokenize(prompt, choices), training=False)  # [B, C]
        return _outputs(logits, choices != "")

    def of_tokens(self, tokens):
        logits = self.model(tokens, training=False)
        return _outputs(logits, tf.reduce_any(tokens["padding_mask"], axis=-1))


def _outputs(logits, exist):
    """Returns the outputs of logits `[B, C]`, of which those of choices that `exist` count."""
    logits = tf.where(exist, logits, -float("inf"))
    # A batch without rows may have no choices either, of which there is no maximum.
    choices = tf.pad(logits, [[0, 0], [0, 1]], constant_values=-float("inf"))
    return {
        "choice": tf.argmax(choices, axis=-1, output_type=tf.int32),
        "probabilities": tf.nn.softmax(logits),
        "logits": logits,
    }
