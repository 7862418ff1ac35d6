"""The flags for a trained model of any task, and for the texts to calibrate it with."""

from bert_tf.errors import UserError, user_error
from bert_tf.tools.common.checkpoint_flags import exported_specs
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.text_files import read_texts

FLAG_HEADINGS = (("", "Model"),)


define_flags(f"""
    model_dir (str): The directory of the trained model, as save_pretrained writes it.
    model (auto|{"|".join(exported_specs())}, auto): The task of the model. `auto` reads it from the
        files in --model_dir; save_pretrained writes it there.
""")


def kind_of_model() -> type:
    """Returns the model class, from --model or from the files in --model_dir."""
    from bert_tf.checkpoints.opening import open_pretrained

    specs = exported_specs()
    if FLAGS.model != "auto":
        return specs[FLAGS.model].model_class()
    pretrained = open_pretrained(FLAGS.model_dir)
    name = pretrained.class_name
    for spec in specs.values():
        by_architecture = set(spec.architectures).intersection(pretrained.architectures)
        if name == spec.model or (name is None and by_architecture):
            return spec.model_class()
    found = name or ", ".join(pretrained.architectures) or "no class"
    raise UserError(
        f"--model must be one of {', '.join(specs)}, as the files in {FLAGS.model_dir} name no "
        f"such model. Received: --model=auto, with {found} in the files. For a task of another "
        "package, pass --import_modules=PACKAGE"
    )


def define_quantization():
    """Defines the flags that say how a model is quantized; see `quantization_arguments`."""
    define_flags("""
        calibration_file (str): For int8: a file with unlabelled texts like those to be predicted,
            one per line (a tab separates the two texts of a pair). Calibration on them loses less
            accuracy.
        calibration_texts (int >= 1, 256): Maximum number of texts to use from --calibration_file,
            from its start.
        activations (dynamic|static, dynamic): The scales of the dense layers' inputs: one per row,
            found at run time, or one per layer, found on --calibration_file.
        attention (float|bfloat16|int8, float): The arithmetic of attention: floating point,
            bfloat16, or 8-bit integers.
        skip (list, []): The layers to keep in floating point, such as blocks.0.output_dense, or
            blocks.0 for all of a block.
    """)


def quantization_arguments() -> dict:
    """Returns the arguments of `quantize` that the flags of `define_quantization` give."""
    if FLAGS.activations == "static" and FLAGS.calibration_file is None:
        expected = "be given with --activations=static, whose scales come from its texts"
        raise user_error("--calibration_file", expected, "--calibration_file=None")
    texts = None if FLAGS.calibration_file is None else read_texts(FLAGS.calibration_file)
    most = FLAGS.calibration_texts
    if texts is not None:
        is_list = isinstance(texts, list)
        texts = texts[:most] if is_list else tuple(column[:most] for column in texts)
    names = ("attention", "skip", "activations")
    return {"calibration": texts, **{name: FLAGS[name].value for name in names}}
