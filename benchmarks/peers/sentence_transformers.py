"""sentence-transformers with ONNX Runtime (5.7) or OpenVINO (6.2): texts to vectors.

sentence-transformers 6.2 requires transformers 5, with which optimum-onnx 0.1.0, the newest
release, cannot be imported.
"""

import os

import sentence_transformers
from sentence_transformers import SentenceTransformer

from . import base

# How many texts are a batch. sentence-transformers' own is 32.
_BATCH_SIZES = (8, 32)


class _SentenceTransformers(base.Peer):
    VARIANTS = {
        "encode": tuple(f"batches of {size}" for size in _BATCH_SIZES),
        "encode_int8": tuple(f"int8, batches of {size}" for size in _BATCH_SIZES),
    }

    def __init__(self, setup):
        super().__init__(setup)
        self._models = {}

    def encode(self, slices, variant):
        return self._task("float32", slices, variant, self.float32_model)

    def encode_int8(self, slices, calibration, variant):
        return self._task("int8", slices, variant, lambda: self.int8_model(calibration))

    def _task(self, kind, slices, variant, make):
        if kind not in self._models:
            self._models[kind] = make()
        model, size = self._models[kind], int(variant.rpartition(" ")[2])
        return base.encode_task(lambda texts: model.encode(texts, batch_size=size), slices)


class OnOnnxRuntime(_SentenceTransformers):
    @property
    def version(self):
        import onnxruntime

        return f"{sentence_transformers.__version__}, ONNX Runtime {onnxruntime.__version__}"

    def float32_model(self, directory=None, **options):
        import onnxruntime

        session = onnxruntime.SessionOptions()
        session.intra_op_num_threads = self.setup.threads
        options |= {"provider": "CPUExecutionProvider", "session_options": session}
        directory = directory or self.setup.model_directory
        return SentenceTransformer(directory, backend="onnx", model_kwargs=options)

    def int8_model(self, texts):
        """Returns the model as `export_dynamic_quantized_onnx_model` makes it, without `texts`."""
        instructions = "avx512_vnni" if "avx512_vnni" in _processor_flags() else "avx2"
        directory = os.path.join(self.setup.scratch, "onnx_int8")
        model = self.float32_model()
        model.save_pretrained(directory)
        sentence_transformers.export_dynamic_quantized_onnx_model(model, instructions, directory)
        file = f"onnx/model_qint8_{instructions}.onnx"
        if not os.path.exists(os.path.join(directory, file)):  # avx2 has unsigned activations
            file = f"onnx/model_quint8_{instructions}.onnx"
        return self.float32_model(directory, file_name=file)


class OnOpenVino(_SentenceTransformers):
    @property
    def version(self):
        import openvino

        return f"{sentence_transformers.__version__}, OpenVINO {openvino.__version__}"

    def float32_model(self):
        # Without the hint, the processor's bfloat16 may be used.
        settings = {
            "INFERENCE_NUM_THREADS": str(self.setup.threads),
            "INFERENCE_PRECISION_HINT": "f32",
        }
        return SentenceTransformer(
            self.setup.model_directory, backend="openvino", model_kwargs={"ov_config": settings}
        )

    def int8_model(self, texts):
        """Returns the model as `export_static_quantized_openvino_model` makes it.

        That function itself takes its texts from the network.
        """
        import nncf

        model = self.float32_model()
        network = model[0].auto_model
        options = {"truncation": True, "max_length": model.max_seq_length, "return_tensors": "np"}
        feeds = [dict(model.tokenizer([text], **options)) for text in texts]
        network.model = nncf.quantize(
            network.model,
            nncf.Dataset(feeds),
            subset_size=len(feeds),
            model_type=nncf.ModelType.TRANSFORMER,
        )
        network.request = None  # compiled again by the next call
        return model


def _processor_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split() for line in file if line.startswith("flags")), [])
