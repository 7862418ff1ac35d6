"""What the conformance tests need to know of sequence-to-sequence models."""

import numpy as np

import bert_tf
from tests.conformance.task import PAIRS, TEXTS, VOCABULARY, Lack, Task, encoded

_TARGETS = encoded(PAIRS)
_END = VOCABULARY.index("[SEP]")


def features() -> dict[str, np.ndarray]:
    """`TEXTS` for the encoder and, for the decoder, `PAIRS` without their `[SEP]`."""
    ids = _TARGETS["token_ids"][:, :-1]
    decoder_ids = np.where(ids == _END, 0, ids)
    decoder = {"decoder_token_ids": decoder_ids, "decoder_padding_mask": decoder_ids > 0}
    return {**encoded(TEXTS), **decoder}


def targets() -> np.ndarray:
    """The words of `PAIRS` and their `[SEP]`; -100 for padding."""
    return np.where(_TARGETS["padding_mask"], _TARGETS["token_ids"], -100)[:, 1:].astype(np.int32)


_LACKS = {
    "serving": Lack("its answers are generated, not computed: see test_generate.py"),
    "datasets to predict": Lack("their batches of several lengths are no array", "list of texts"),
}
TASKS = {
    "encoder-decoder": Task(
        bert_tf.BertEncoderDecoder,
        features(),
        text=(TEXTS, PAIRS),
        targets=targets(),
        lacks=_LACKS,
        saved={"max_length": 20, "max_target_length": 10, "tie_word_embeddings": False},
    ),
    "encoder-decoder with shared weights": Task(
        bert_tf.BertEncoderDecoder,
        features(),
        text=(TEXTS, PAIRS),
        targets=targets(),
        options={"share_encoder_decoder_weights": True},
        lacks=_LACKS,
        is_variant=True,
    ),
}
