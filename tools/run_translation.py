r"""Trains a model of BERTs to translate, evaluates it and translates.

    bert-tf run_translation --data_dir=bible --encoder=bert-base-cased \
      --decoder=bert-base-cased --do_train --do_eval --do_predict --num_beams=4 --output_dir=out

or, from scratch, with one vocabulary for both languages:

    bert-tf build_vocab --input_file=bible/train.tsv --vocab_size=8000 \
      --do_lower_case=false --output_file=vocab.txt
    bert-tf run_translation --data_dir=bible --bert_config_file=config.json \
      --vocab_file=vocab.txt --do_lower_case=false --lr_schedule=noam --learning_rate=1e-3 \
      --train_token_budget=4096 --label_smoothing=0.1 --average_checkpoints=5 \
      --do_train --do_eval --do_predict --num_beams=4 --output_dir=out

--architecture=prefix_lm trains one BERT that reads the source and writes the target, from
--init_checkpoint or from scratch.

--data_dir has train, dev and test as .tsv files with lines of source<TAB>target, or as .csv or
.jsonl files with named columns. Further fields of a line of dev or test, or --reference_columns,
are further references, with which BLEU, chrF and TER are computed.

The tool writes to --output_dir:

    model/                  the trained model: a Hugging Face directory with tokenizer
    checkpoints/            from which the same command resumes a killed run
    log.jsonl               one JSON line every --log_steps, and the scores of the dev file
    eval_results.txt        the loss on the dev file, and BLEU, chrF, chrF++ and TER of the
                            translations
    eval_predictions.txt    the translations of the dev file, one per line; eval_predictions.jsonl
                            has them with their sources and references
    test_results.txt, test_predictions.txt, test_predictions.jsonl    the same of the test file,
                            which may be without references
    lora.safetensors        the LoRA weights, with --lora_rank
"""

from bert_tf.tools.common import generation_flags, generation_models, generation_run, tool, workers

generation_flags.define_data("source", "target")
generation_flags.define_model()
generation_flags.define_training()
generation_flags.define_decoding()


def main():
    generation_flags.check_flags()
    generation_run.run(generation_models.load_writer, ("bleu", "chrf", "chrf++", "ter"))


if __name__ == "__main__":
    tool.run(workers.run(main), "data_dir", "output_dir")
