"""fastembed: texts to vectors, with Hugging Face's tokenizers and ONNX Runtime."""

import importlib.metadata
import os
import shutil

import fastembed
import onnxruntime
from fastembed.common.model_description import ModelSource, PoolingType

from . import base, onnx_export

_NAME = "benchmark/minilm"  # fastembed registers models by name
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
_BATCH_SIZES = (8, 256)  # 256 is its own


class FastEmbed(base.Peer):
    """fastembed with the shared weights, as ONNX Runtime's BERT fusions leave them."""

    VARIANTS = {"encode": tuple(f"batches of {size}" for size in _BATCH_SIZES)}

    @property
    def version(self):
        version = importlib.metadata.version("fastembed")
        return f"{version}, ONNX Runtime {onnxruntime.__version__}"

    def __init__(self, setup):
        super().__init__(setup)
        directory = os.path.dirname(onnx_export.fused(setup))
        for name in _FILES:
            shutil.copy(os.path.join(setup.model_directory, name), directory)
        fastembed.TextEmbedding.add_custom_model(
            _NAME,
            PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(url="unused"),
            dim=setup.config["hidden_size"],
            model_file="fused.onnx",
            output_name="sequence_output",
        )
        self._model = fastembed.TextEmbedding(
            _NAME, specific_model_path=directory, threads=setup.threads
        )

    def encode(self, slices, variant):
        size = int(variant.rpartition(" ")[2])
        return base.encode_task(lambda texts: [*self._model.embed(texts, batch_size=size)], slices)
