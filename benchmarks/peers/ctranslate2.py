"""CTranslate2's Encoder, converted from the shared weights."""

import functools
import os

import ctranslate2
import numpy as np

from .base import Peer, inference_task


class CTranslate2(Peer):
    """float32, one stream."""

    version = ctranslate2.__version__

    @functools.cached_property
    def _encoder(self):
        import ctranslate2.converters
        import transformers

        transformers.utils.logging.set_verbosity_error()
        path = os.path.join(self.setup.scratch, "ctranslate2")
        ctranslate2.converters.TransformersConverter(self.setup.model_directory).convert(path)
        return ctranslate2.Encoder(
            path,
            device="cpu",
            compute_type="float32",
            inter_threads=1,
            intra_threads=self.setup.threads,
        )

    def inference(self, batches, variant):
        encoder = self._encoder

        def encode(feed):
            ids, lengths, segments = feed
            output = encoder.forward_batch(ids, lengths, segments)
            return output.last_hidden_state, output.pooler_output

        return inference_task(encode, [_feed(batch) for batch in batches])


def _feed(batch):
    # The storage views use the memory of these arrays, which must be contiguous.
    lengths = batch["padding_mask"].sum(axis=1)
    return (
        ctranslate2.StorageView.from_array(np.ascontiguousarray(batch["token_ids"])),
        ctranslate2.StorageView.from_array(lengths.astype(np.int32)),
        [row[:length].tolist() for row, length in zip(batch["segment_ids"], lengths)],
    )
