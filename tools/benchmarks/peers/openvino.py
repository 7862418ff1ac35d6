"""The peer OpenVINO: its CPU plugin with the latency hint, in float32 or quantized by NNCF."""

import functools

import openvino

from . import hf_sentence, onnx_export
from .base import Peer, calibration_examples, inference_task


class OpenVino(Peer):
    """OpenVINO; the variants are two exports of attention, and fixed shapes for compiling."""

    version = openvino.__version__

    def variants(self, job, bucket, is_ragged):
        if job.endswith("_int8"):  # calibration takes minutes, so only one export is tried
            return ("sdpa",) if is_ragged else ("sdpa", "sdpa, static shape")
        return ("sdpa", "eager") if is_ragged else ("sdpa", "eager", "sdpa, static shape")

    @functools.cache
    def _for_all_shapes(self, attention):
        return self._compiled(attention, None)

    @functools.cache
    def _quantized_path(self, attention):
        """Quantizes the model, calibrated with random tokens like those of the workloads."""
        import nncf

        path = onnx_export.export(self.setup, attention)
        examples = calibration_examples(self.setup.config)
        quantized = nncf.quantize(
            openvino.Core().read_model(path),
            nncf.Dataset([onnx_export.feed(example) for example in examples]),
            subset_size=len(examples),
            model_type=nncf.ModelType.TRANSFORMER,
        )
        target = path.removesuffix(".onnx") + "_int8.xml"
        openvino.save_model(quantized, target, compress_to_fp16=False)
        return target

    def _compiled(self, attention, shape, outputs=2):
        """Compiles the model for one shape, or None: for all, with its first `outputs` outputs."""
        kind, _, dtype = attention.partition(" ")
        path = self._quantized_path(kind) if dtype else onnx_export.export(self.setup, kind)
        model = openvino.Core().read_model(path)
        for result in model.get_results()[outputs:]:
            model.remove_result(result)
        if shape is not None:
            model.reshape({port: list(shape) for port in model.inputs})
        options = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": self.setup.threads,
            # Otherwise the plugin rounds float32 to bfloat16 on processors that support it.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        return openvino.Core().compile_model(model, "CPU", options).create_infer_request()

    def inference_int8(self, batches, variant):
        attention, _, static = variant.partition(", ")
        return self.inference(batches, f"{attention} int8, {static}")

    def inference(self, batches, variant):
        attention, _, static = variant.partition(", ")
        feeds = [onnx_export.feed(batch) for batch in batches]
        # Each compiled model has its own copy of the weights, so those of one shape are not cached.
        requests = [
            self._compiled(attention, feed["input_ids"].shape)
            if static
            else self._for_all_shapes(attention)
            for feed in feeds
        ]

        def encode(pair):
            request, feed = pair
            request.infer(feed, share_inputs=True)
            # These are the buffers of the request, which the next call overwrites.
            return request.get_output_tensor(0).data, request.get_output_tensor(1).data

        return inference_task(encode, list(zip(requests, feeds)))

    def latency_int8(self, text, variant):
        attention, _, static = variant.partition(", ")
        return self.latency(text, f"{attention} int8, {static}")

    def latency(self, text, variant):
        attention, _, static = variant.partition(", ")

        @functools.cache
        def request(shape):
            return self._compiled(attention, shape, outputs=1)

        def model(feed):
            running = request(feed["input_ids"].shape if static else None)
            running.infer(feed, share_inputs=True)
            return running.get_output_tensor(0).data

        return hf_sentence.sentence_task(self.setup.model_directory, model, text)
