"""What the conformance tests need to know of masked language models."""

import functools

import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.tasks.masked_lm import mask_texts
from tests.conformance.task import (
    LENGTH,
    ROWS,
    TEXTS,
    VOCABULARY,
    Lack,
    Task,
    encoded,
    pieces,
    tokenizer,
)

MASKED = ["[MASK] film", "the [MASK] [MASK].", "a b", "the film", "good [MASK] bad", "e [MASK]"]
MASKED = [text if "[MASK]" in text else f"{text} [MASK]" for text in MASKED]


def _mask_places() -> list[list[int]]:
    """The columns of the masks of each row of `MASKED`."""
    return [[1 + i for i, p in enumerate(pieces(text)) if p == "[MASK]"] for text in MASKED]


def masked_features():
    """A token dictionary of `MASKED`, with the places of the masks."""
    places = _mask_places()
    positions = np.zeros([ROWS, max(map(len, places))], np.int32)
    for row, columns in enumerate(places):
        positions[row, : len(columns)] = columns
    return {**encoded(MASKED), "masked_positions": positions}


def _masks_by_hand(logits):
    """The five most probable pieces of every mask, with their probabilities."""
    probabilities = tf.nn.softmax(logits).numpy()  # [B, P, V]
    filled = []
    for row, places in enumerate(_mask_places()):
        best = [np.argsort(-probabilities[row, place])[:5] for place in range(len(places))]
        filled.append(
            [[(VOCABULARY[i], probabilities[row, p][i]) for i in ids] for p, ids in enumerate(best)]
        )
    return filled


def _masks_served(outputs):
    piece, probability = outputs["piece"].numpy(), outputs["probability"].numpy()
    return [
        [
            [(p.decode(), q) for p, q in zip(piece[row, n], probability[row, n])]
            for n in range(count)
        ]
        for row, count in enumerate(outputs["mask_count"].numpy())
    ]


def masked_targets():
    """`film` is the word at the first mask of every row, `e` at the others; some count half."""
    places = masked_features()["masked_positions"]
    weights = np.where(places > 0, [1.0, 0.5], 0.0)  # [B, P]
    ids = np.where(places > 0, [VOCABULARY.index("film"), VOCABULARY.index("e")], 0)
    return {"masked_ids": ids.astype(np.int32), "masked_weights": weights.astype(np.float32)}


@functools.cache
def _masked_texts():
    """`TEXTS` as `evaluate` masks them, and what is hidden."""
    texts = tf.data.Dataset.from_tensors(tf.constant(TEXTS))
    masked = mask_texts(texts, tokenizer(), LENGTH, seed=0, fresh=False)
    return tf.nest.map_structure(lambda values: values.numpy(), next(iter(masked)))


TASKS = {
    "masked LM": Task(
        bert_tf.BertMaskedLM,
        masked_features(),
        text=TEXTS,
        targets=masked_targets(),
        of_text=_masked_texts,
        asked=MASKED,
        answers=lambda model, asked, **batching: [
            [[tuple(one) for one in mask] for mask in row]
            for row in model.fill_mask(asked, **batching)
        ],
        by_hand=_masks_by_hand,
        signature=("text",),
        served=_masks_served,
        lacks={
            "own masks": Lack("`fit` on text draws its masks"),
            "datasets to predict": Lack(
                "every text must have a mask, which is seen first", "list of texts"
            ),
        },
        saved={"max_length": 20},
    )
}
