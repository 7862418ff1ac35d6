"""llama.cpp through llama-cpp-python 0.3.36: texts to vectors, with its tokenizer.

Its BERT has neither the pooler nor other segments than the first, so `inference` cannot compare it.
It computes GELU by the formula with tanh, from a table in half precision.
"""

import functools
import os

import gguf
import llama_cpp

from . import base

_FLOAT = gguf.GGMLQuantizationType.F32
_BATCH_TOKENS = (256, 512)  # its own is 512; more are slower
# llama.cpp's own quantizer leaves them in float32, too.
_NEVER_QUANTIZED = ("position_embd.weight", "token_types.weight")


class LlamaCpp(base.Peer):
    VARIANTS = {
        "encode": tuple(f"F32, batches of {count} tokens" for count in _BATCH_TOKENS),
        "encode_int8": tuple(f"Q8_0, batches of {count} tokens" for count in _BATCH_TOKENS),
    }
    version = llama_cpp.__version__

    @functools.cache
    def _model(self, variant):
        dtype, _, _, count, _ = variant.replace(",", "").split()
        tokens = int(count)
        return llama_cpp.Llama(
            self._path(gguf.GGMLQuantizationType[dtype]),
            embedding=True,
            n_ctx=tokens,
            n_batch=tokens,
            n_ubatch=tokens,
            n_threads=self.setup.threads,
            n_threads_batch=self.setup.threads,
            verbose=False,
        )

    @functools.cache
    def _path(self, dtype):
        """Writes a GGUF file whose matrices have the dtype, and returns its path."""
        config = self.setup.config
        path = os.path.join(self.setup.scratch, f"{dtype.name}.gguf")
        writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.BERT])
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_layer_norm_eps(config["layer_norm_eps"])
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        writer.add_token_type_count(config["type_vocab_size"])
        writer.add_tokenizer_model("bert")
        writer.add_token_list([*map(_with_space, self._vocabulary())])
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config["num_hidden_layers"])
        for theirs, values in self.setup.encoder_tensors.items():
            name = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
            if name is None:  # the pooler
                continue
            is_float = values.ndim == 1 or name in _NEVER_QUANTIZED
            kept = _FLOAT if is_float else dtype
            writer.add_tensor(name, gguf.quants.quantize(values, kept), raw_dtype=kept)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _vocabulary(self):
        path = os.path.join(self.setup.model_directory, "vocab.txt")
        with open(path, encoding="utf-8") as file:
            return [line.rstrip("\n") for line in file]

    def encode(self, slices, variant, calibration=None):
        model = self._model(variant)
        return base.encode_task(lambda texts: model.embed(texts, normalize=True), slices)

    encode_int8 = encode


def _with_space(piece):
    """Returns a piece as llama.cpp spells it: a mark begins a word, instead of "##" inside one."""
    return piece[2:] if piece.startswith("##") else f"▁{piece}"
