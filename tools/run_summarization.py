r"""Trains a BERT to summarize, evaluates it and summarizes with it.

    bert-tf run_summarization --method=abstractive --data_dir=descriptions \
      --encoder=bert-base-cased --decoder=bert-base-cased --do_train --do_eval --output_dir=out

    bert-tf run_summarization --method=extractive --data_dir=descriptions \
      --init_checkpoint=bert-base-cased --num_sentences=1 --do_train --do_eval --output_dir=out

With --method=abstractive, the model writes the summary, as in run_translation.py.
With --method=extractive, the summary is the best sentences of the document. --data_dir has train,
dev and test as .tsv files with lines of document<TAB>summary, or as .csv or .jsonl files with named
columns. Further fields of a line of dev or test, or --reference_columns, are further summaries, of
which ROUGE takes the one with the largest F.

The tool writes to --output_dir:

    model/                  the trained model: a directory with tokenizer
    checkpoints/            from which the same command resumes a killed run
    log.jsonl               one JSON line every --log_steps, and the scores of the dev file
    eval_results.txt        the loss on the dev file, and ROUGE-1, ROUGE-2 and ROUGE-L (F1, 0 to
                            100) of the summaries
    eval_predictions.txt    the summaries of the dev file, one per line; eval_predictions.jsonl has
                            them with their documents and references
    test_results.txt, test_predictions.txt, test_predictions.jsonl    the same of the test file,
                            which may be without references
    lora.safetensors        the LoRA weights, with --lora_rank
"""

from bert_tf.errors import user_error
from bert_tf.tools.common import (
    fine_tuning_flags,
    generation_flags,
    generation_models,
    generation_run,
    tool,
    workers,
)
from bert_tf.tools.common.flag_table import FLAGS, define_flags

define_flags("""
    method (abstractive|extractive, abstractive): Whether the model writes the summary or chooses
        sentences of the document.
""")
generation_flags.define_data("document", "summary")
generation_flags.define_model()
generation_flags.define_training()
generation_flags.define_decoding()
define_flags("""
    num_sentences (int >= 1): With --method=extractive: the maximum number of sentences of a
        summary. Default: 3, or as the trained model says.
    trigram_blocking (bool): With --method=extractive: whether a sentence is left out that has three
        words in a row in common with a better one. Default: true, or as the trained model says.
""")

_EXTRACTIVE = ("num_sentences", "trigram_blocking")


def check_method():
    """Refuses flags of the other method."""
    is_extractive = FLAGS.method == "extractive"
    wrong = generation_flags.WRITING if is_extractive else _EXTRACTIVE
    given = [f"--{name}" for name in wrong if FLAGS[name].present]
    if given:
        expected = f"not be set with --method={FLAGS.method}, which has no use for such flags"
        raise user_error(", ".join(given), expected, f"--method={FLAGS.method}")
    if is_extractive and fine_tuning_flags.changes_loss():
        expected = "be used with --method=abstractive"
        raise user_error("--label_smoothing and --focal_gamma", expected, "--method=extractive")


def main():
    check_method()
    generation_flags.check_flags()
    is_extractive = FLAGS.method == "extractive"
    models = generation_models
    load_model = models.load_extractor if is_extractive else models.load_writer
    generation_run.run(load_model, ("rouge1", "rouge2", "rougeL"))


if __name__ == "__main__":
    tool.run(workers.run(main), "data_dir", "output_dir")
