"""Exports a trained classifier as a SavedModel that takes raw strings.

    python tools/export_saved_model.py --model_dir=out/model --export_dir=serving/reviews

writes serving/reviews/1, with the signatures `serving_default` (text -> label, probabilities,
logits) and `tokens`.
"""

from absl import flags

from bert_tf import tool

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "A directory written by save_pretrained.")
flags.DEFINE_string("export_dir", None, "Where to write; TF Serving's model base path.")
flags.DEFINE_integer("version", 1, "Name of the subdirectory.", lower_bound=1)
flags.DEFINE_bool(
    "portable", True, "Only stock operations, so that a stock TF Serving loads the model."
)


def main():
    from bert_tf.models.text_classifier import BertTextClassifier
    from bert_tf.serving import export

    tool.require_writable(FLAGS.export_dir, "export_dir")
    model = BertTextClassifier.from_pretrained(FLAGS.model_dir)
    path = export(model, FLAGS.export_dir, FLAGS.version, FLAGS.portable)
    print(
        f"{path}\n  serving_default: text [B] -> label [B], probabilities [B, C], logits [B, C]\n"
        "  tokens: token_ids, segment_ids, padding_mask [B, T] -> the same\n"
        f"  labels: {', '.join(model.labels)}"
    )


if __name__ == "__main__":
    flags.mark_flags_as_required(["model_dir", "export_dir"])
    tool.run(main)
