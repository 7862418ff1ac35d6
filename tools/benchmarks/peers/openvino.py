"""OpenVINO's CPU plugin, latency hint, float32 throughout."""

import functools

import openvino

from . import onnx_export
from .base import InferenceTask, Peer


class OpenVino(Peer):
    """The variants say how attention was exported and whether shapes were fixed for compiling."""

    @property
    def version(self):
        return openvino.__version__

    def variants(self, job, bucket, is_ragged):
        return ("sdpa", "eager") if is_ragged else ("sdpa", "eager", "sdpa, static shape")

    @functools.cache
    def _for_all_shapes(self, attention):
        return self._compiled(attention, None)

    def _compiled(self, attention, shape):
        model = openvino.Core().read_model(onnx_export.export(self.setup, attention))
        if shape is not None:
            model.reshape({port: list(shape) for port in model.inputs})
        options = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": self.setup.threads,
            # On a processor with bfloat16 the plugin would silently round float32 to it.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        return openvino.Core().compile_model(model, "CPU", options).create_infer_request()

    def inference(self, batches, variant):
        attention, _, static = variant.partition(", ")
        feeds = [onnx_export.feed(batch) for batch in batches]
        # Each compiled model packs the weights anew: those of one shape go with their task.
        requests = [
            self._compiled(attention, feed["input_ids"].shape)
            if static
            else self._for_all_shapes(attention)
            for feed in feeds
        ]

        def encode(pair):
            request, feed = pair
            request.infer(feed, share_inputs=True)
            # The request's own buffers are read before the next call overwrites them.
            return request.get_output_tensor(0).data, request.get_output_tensor(1).data

        return _CopyingTask(encode, list(zip(requests, feeds)))


class _CopyingTask(InferenceTask):
    def outputs(self):
        result = {}
        for index, feed in enumerate(self._feeds):
            sequence_output, pooled_output = self._model(feed)
            result[f"{index}/sequence_output"] = sequence_output.copy()
            result[f"{index}/pooled_output"] = pooled_output.copy()
        return result
