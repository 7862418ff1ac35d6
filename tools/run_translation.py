r"""Trains an encoder-decoder model of two BERTs that translates.

    python tools/run_translation.py --data_dir=bible --encoder=bert-base-uncased \
      --decoder=bert-base-uncased --do_train --output_dir=out

or, from scratch, with one vocabulary for both languages:

    cut -f1 bible/train.tsv > words.txt && cut -f2 bible/train.tsv >> words.txt
    python tools/build_vocab.py --input_file=words.txt --vocab_size=8000 --output_file=vocab.txt
    python tools/run_translation.py --data_dir=bible --bert_config_file=config.json \
      --vocab_file=vocab.txt --do_train --output_dir=out

--data_dir has train, dev and test as .tsv files with lines of source<TAB>target, or as .csv or
.jsonl files with named columns.

The tool writes to --output_dir:

    model/              the trained model: a Hugging Face directory with tokenizer
    checkpoints/        from which the same command resumes a killed run
    log.jsonl           one JSON line every --log_steps, and the scores of the dev file
    lora.safetensors    the LoRA weights, with --lora_rank
"""

from absl import flags
from common import generation_flags, generation_training

from bert_tf import tool

FLAGS = flags.FLAGS

generation_flags.define_data("source", "target")
generation_flags.define_model()
generation_flags.define_training()


def main():
    generation_flags.check_flags()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    pairs = generation_flags.read_pairs("train")
    dev_pairs = generation_flags.read_pairs("dev") if generation_flags.has_split("dev") else None
    model = generation_training.load_model()
    generation_training.train(model, pairs, dev_pairs)


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "output_dir"])
    tool.run(main)
