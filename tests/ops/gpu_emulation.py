"""A pytest plugin: the tests of a run see GPUs, which are the CPU, twice, with the emulated CUDA
kernels.

    BERT_TF_EMULATED_GPU=path/_bert_tf_emulated_gpu.so \\
        python -m pytest -p tests.ops.gpu_emulation tests/ops/test_fused_bias_gelu.py ...

The ops that have GPU kernels run through their GPU OpKernels and, under XLA, through the GPU's
lowerings and handlers; the others take what they take where a GPU is visible.
//custom_ops/xla:_bert_tf_emulated_gpu.so holds all that; test_gpu_emulation.py builds and runs it.

In //custom_ops/xla:_bert_tf_launched_gpu.so the launchers are those of a GPU: NVRTC compiles the
kernels, and the driver that launches them, //custom_ops/kernels:emulated_driver/libcuda.so.1, runs
the emulated ones in their place.
"""

import os
import pathlib

import tensorflow as tf

from bert_tf.ops import loading, native


def see_gpus():
    """Makes the CPU two visible GPUs, with the kernels of the object in BERT_TF_EMULATED_GPU."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    visible = tf.config.get_visible_devices
    tf.config.get_visible_devices = lambda kind=None: [cpu] if kind == "GPU" else visible(kind)
    loading._unfit_gpu = lambda gpus: ""
    loading._FIRST_GPU = "CPU:0"
    loading._XLA_LIBRARY_PATH = pathlib.Path("the emulated GPU's handlers have these names")
    path = pathlib.Path(os.environ["BERT_TF_EMULATED_GPU"])
    loading._GPU_LIBRARY_PATH = loading._GPU_XLA_LIBRARY_PATH = path


def pytest_configure():
    os.environ[native.BACKEND_VARIABLE] = "native"
    see_gpus()
    assert native.has_gpu_kernels() and native.compiles_under_xla(), loading.load().reason
    from tests.ops import backends  # it loads the ops

    backends.BACKENDS = ("native",)
