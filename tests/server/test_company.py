"""What the other requests of a batch change in an answer: rounding, by their lengths alone."""

import asyncio
import random

import numpy as np
import pytest

from bert_tf import BertSentenceEncoder, ops
from bert_tf.inputs import TOKEN_BUDGET
from bert_tf.server.batcher import Batcher
from bert_tf.server.export_for_server import export_for_server
from bert_tf.server.limits import Limits
from bert_tf.server.metrics import Metrics
from bert_tf.server.served_model import ServedModel
from bert_tf.serving.export import export

# docs/local_server.md: at most 1.1e-6 of a row's largest number was measured.
ROUNDING = 5e-6
WORDS = ("a", "waste", "of", "time", "the", "film", "is", "good", "bad", "dog", "at", "night")
LENGTHS = (1, 3, 8, 20, 60)  # words


def _texts(seed, lengths):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=length)) for length in lengths]


def _answers(model, output, groups):
    """Row by row what each group of requests, one text each, gets; a group shares its batches."""

    async def scenario():
        batcher = Batcher(model, TOKEN_BUDGET, 0.02, Limits(), Metrics())
        signature = model.signatures["serving_default"]
        answers = []
        for group in groups:
            asked = [
                batcher.run(signature, {"text": np.array([text.encode()], object)}, 1)
                for text in group
            ]
            answers.append([answer[output][0] for answer in await asyncio.gather(*asked)])
        await batcher.close()
        return answers

    return asyncio.run(scenario())


def _check(model, output):
    lengths = [length for length in LENGTHS for _ in range(4)]
    texts = _texts(1, lengths)
    alone = [rows[0] for rows in _answers(model, output, [[text] for text in texts])]
    order = list(range(len(texts)))
    random.Random(2).shuffle(order)
    groups = [order[:3], order[3:], order]
    for group, rows in zip(
        groups, _answers(model, output, [[texts[n] for n in g] for g in groups])
    ):
        for number, row in zip(group, rows):
            difference = np.abs(row - alone[number]).max()
            assert difference <= ROUNDING * np.abs(alone[number]).max()
    # Others of the same lengths in tokens change nothing at all.
    others = [" ".join(reversed(text.split())) for text in texts[1:]]
    (first, *_), (second, *_) = _answers(model, output, [texts, [texts[0], *others]])
    np.testing.assert_array_equal(first, second)


def test_company_changes_rounding_only(exported):
    _check(ServedModel(exported / "1"), "probabilities")


@pytest.mark.full
def test_company_of_real_weights(minilm, tmp_path):
    _check(ServedModel(export_for_server(minilm, tmp_path / "served", "float32")), "vector")
    model = BertSentenceEncoder.from_pretrained(minilm)
    with ops.backend("reference"):
        _check(ServedModel(export(model, tmp_path / "portable", version=1)), "vector")
