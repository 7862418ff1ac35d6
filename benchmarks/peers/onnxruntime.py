"""The peer ONNX Runtime on its CPU provider, with and without its BERT fusions.

In 8-bit integers it quantizes activations dynamically, with one scale per tensor. In bfloat16 its
CPU provider has no matmul ("Could not find an implementation for MatMul"), so it is not measured.
"""

import functools

import onnxruntime

from . import hf_sentence, onnx_export
from .base import Peer, inference_task


class OnnxRuntime(Peer):
    """ONNX Runtime; "fused" has the fusions of onnxruntime.transformers (Attention, BiasGelu)."""

    version = onnxruntime.__version__
    VARIANTS = dict.fromkeys(
        ("inference", "inference_int8", "latency", "latency_int8"), ("fused", "plain")
    )

    @functools.cache
    def _path(self, variant):
        """Returns the file of "plain", "fused", "plain int8" or "fused int8"."""
        name, _, dtype = variant.partition(" ")
        if dtype:
            return _quantized(self._path(name))
        export = onnx_export.fused if name == "fused" else onnx_export.export
        return export(self.setup)

    @functools.cache
    def _session(self, variant):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.setup.threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(self._path(variant), options, providers=providers)

    def inference_int8(self, batches, variant):
        return self.inference(batches, f"{variant} int8")

    def inference(self, batches, variant):
        session = self._session(variant)
        names = ["sequence_output", "pooled_output"]
        return inference_task(
            lambda feed: session.run(names, feed),
            [onnx_export.feed(self.setup, batch) for batch in batches],
        )

    def latency_int8(self, text, calibration, variant):
        return self.latency(text, f"{variant} int8")

    def latency(self, text, variant):
        session = self._session(variant)

        def model(feed):
            return session.run(["sequence_output"], feed)[0]

        return hf_sentence.sentence_task(self.setup.model_directory, model, text)


def _quantized(path: str) -> str:
    """Quantizes the matmul weights to signed bytes with one scale per column.

    The library recommends it for processors with VNNI.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = path.removesuffix(".onnx") + "_int8.onnx"
    quantize_dynamic(
        path,
        target,
        weight_type=QuantType.QInt8,
        per_channel=True,
        # The type of the outputs of its fused operators, which shape inference does not know.
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    return target
