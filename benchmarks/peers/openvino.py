"""The peer OpenVINO: its CPU plugin with the latency hint, also quantized by NNCF.

By default the plugin rounds float32 to bfloat16 on processors that support it, also what is left of
it in a quantized model. So a variant begins with a precision: the plugin's default, or a hint.
"""

import functools

import openvino

from . import hf_sentence, onnx_export
from .base import Peer, calibration_examples, inference_task

_PRECISION = "INFERENCE_PRECISION_HINT"


class OpenVino(Peer):
    """OpenVINO; the variants are precisions, two exports of attention, and fixed shapes."""

    version = openvino.__version__

    def variants(self, job, bucket, is_ragged):
        dtype = job.partition("_")[2]
        default = f"default {openvino.Core().get_property('CPU', _PRECISION).get_type_name()}"
        precisions = {"bfloat16": (default, "bf16 hint"), "int8": (default, "f32 hint")}
        precisions = precisions.get(dtype, ("f32 hint",))
        # Calibration takes minutes, so only one export is tried in int8.
        forms = ["sdpa"] if dtype == "int8" else ["sdpa", "eager"]
        if not is_ragged:
            forms.append("sdpa, static shape")
        return tuple(f"{precision}, {form}" for precision in precisions for form in forms)

    @functools.cache
    def _for_all_shapes(self, variant):
        return self._compiled(variant, None)

    @functools.cache
    def _quantized_path(self, attention, texts):
        """Quantizes the model, calibrated with texts or, without, with random tokens."""
        import nncf

        path = onnx_export.export(self.setup, attention)
        if texts:
            feeds = [*map(hf_sentence.tokenizer(self.setup.model_directory), texts)]
        else:
            feeds = [
                onnx_export.feed(self.setup, batch)
                for batch in calibration_examples(self.setup.config)
            ]
        quantized = nncf.quantize(
            openvino.Core().read_model(path),
            nncf.Dataset(feeds),
            subset_size=len(feeds),
            model_type=nncf.ModelType.TRANSFORMER,
        )
        target = path.removesuffix(".onnx") + "_int8.xml"
        openvino.save_model(quantized, target, compress_to_fp16=False)
        return target

    def _compiled(self, variant, shape, outputs=2, texts=None):
        """Compiles the model for one shape, or None: for all, with its first `outputs` outputs.

        The variants of int8 are preceded by "int8, "; `texts` are for their calibration.
        """
        attention = "eager" if "eager" in variant else "sdpa"
        if variant.startswith("int8"):
            path = self._quantized_path(attention, texts)
        else:
            path = onnx_export.export(self.setup, attention)
        model = openvino.Core().read_model(path)
        for result in model.get_results()[outputs:]:
            model.remove_result(result)
        if shape is not None:
            model.reshape({port: list(shape) for port in model.inputs})
        options = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": self.setup.threads,
        }
        if "default" not in variant:
            options[_PRECISION] = "bf16" if "bf16 hint" in variant else "f32"
        return openvino.Core().compile_model(model, "CPU", options).create_infer_request()

    def inference_int8(self, batches, variant):
        return self.inference(batches, f"int8, {variant}")

    def inference(self, batches, variant):
        feeds = [onnx_export.feed(self.setup, batch) for batch in batches]
        # Each compiled model has its own copy of the weights, so those of one shape are not cached.
        requests = [
            self._compiled(variant, feed["input_ids"].shape)
            if "static" in variant
            else self._for_all_shapes(variant)
            for feed in feeds
        ]

        def encode(pair):
            request, feed = pair
            request.infer(feed, share_inputs=True)
            # These are the buffers of the request, which the next call overwrites.
            return request.get_output_tensor(0).data, request.get_output_tensor(1).data

        return inference_task(encode, list(zip(requests, feeds)))

    inference_bfloat16 = inference

    def latency_int8(self, text, calibration, variant):
        return self.latency(text, f"int8, {variant}", calibration)

    def latency(self, text, variant, calibration=None):
        @functools.cache
        def request(shape):
            return self._compiled(variant, shape, outputs=1, texts=calibration)

        def model(feed):
            running = request(feed["input_ids"].shape if "static" in variant else None)
            running.infer(feed, share_inputs=True)
            return running.get_output_tensor(0).data

        return hf_sentence.sentence_task(self.setup.model_directory, model, text)
