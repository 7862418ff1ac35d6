"""The flags that name the texts with which a model is calibrated before it is quantized."""

from absl import flags

from common.text_files import read_texts

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "calibration_file",
    None,
    "For int8: a file with unlabelled texts like those to be predicted, one per line (a tab "
    "separates the two texts of a pair). Calibration on them loses less accuracy.",
)
flags.DEFINE_integer(
    "calibration_texts",
    256,
    "Maximum number of texts to use from --calibration_file, from its start.",
    lower_bound=1,
)


def calibration_texts():
    """Reads --calibration_file for `quantize`; returns None if the flag is not set."""
    if FLAGS.calibration_file is None:
        return None
    texts = read_texts(FLAGS.calibration_file)
    most = FLAGS.calibration_texts
    return texts[:most] if isinstance(texts, list) else tuple(column[:most] for column in texts)
