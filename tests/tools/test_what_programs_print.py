"""What programs print into a file: no messages of TensorFlow, no bars, nothing twice; at the end
what was made and where.

Every program that works on files starts as a user starts it, on tiny files.
"""

import os
import re
import shlex
import shutil

import pytest

from tests.conftest import REPOSITORY
from tests.example_files import write_document_files
from tests.tools.running import TOOLS, run_program

SST_2 = "--task_name=sst-2 --data_dir=SST-2"
TRAIN = "--init_checkpoint=bert-base --do_train --num_train_epochs=1"
# Of a command line: the last words of what it prints, after "OUT", the output.
PROGRAMS = {
    "build_vocab --input_file=corpus-1.txt --vocab_size=70 --output_file=OUT": "OUT",
    "tokenize_text --vocab_file=vocab.txt --text='a good film'": None,  # the answer alone
    "create_pretraining_data --input_file=input.txt --vocab_file=vocab.txt "
    "--output_file=OUT": "OUT",
    "beam_build_vocab --input_file=corpus-1.txt --vocab_size=70 --output_file=OUT "
    "--direct_num_workers=1": "OUT",
    "beam_create_pretraining_data --input_file=input.txt --vocab_file=vocab.txt "
    "--output_file=OUT --direct_num_workers=1": "OUT",
    "run_pretraining --input_file=out-0.tfrecord --bert_config_file=config.json --do_train "
    "--train_batch_size=2 --num_train_steps=2 --num_warmup_steps=1 --output_dir=OUT": "OUT",
    f"run_classifier {SST_2} {TRAIN} --do_eval --do_predict --output_dir=OUT": "OUT/model",
    f"run_ner --data_dir=conll2003 {TRAIN} --do_eval --do_predict --output_dir=OUT": "OUT/model",
    f"run_squad --train_file=train-v1.1.json {TRAIN} --output_dir=OUT": "OUT/model",
    f"run_swag --data_dir=swag {TRAIN} --do_eval --output_dir=OUT": "OUT/model",
    f"run_sentence_encoder --objective=cosine --train_file=sts-train.tsv --score_scale=5 {TRAIN} "
    "--dev_file=sts-dev.tsv --do_eval --output_dir=OUT": "OUT/model",
    "run_translation --data_dir=pairs --encoder=bert-base --decoder=bert-base --do_train "
    "--num_train_epochs=1 --num_beams=1 --output_dir=OUT": "OUT/model",
    "run_summarization --method=extractive --data_dir=pairs --init_checkpoint=bert-base "
    "--do_train --num_train_epochs=1 --output_dir=OUT": "OUT/model",
    f"evaluate {SST_2} --split=dev --labels=0,1 --predictions_file=out/dev_results.tsv "
    "--output_dir=OUT": "OUT/report.txt",
    "evaluate_retrieval --model_dir=minilm --data_dir=scifact --output_dir=OUT": "OUT/"
    "retrieval_results.json",
    f"compare_models {SST_2} --split=dev --model_dirs=out/model --timing_rounds=1": None,
    "predict --model_dir=out/model --text='a good film'": None,
    "predict --model_dir=out/model --input_file=reviews.txt --output_file=OUT": "OUT",
    "build_index --model_dir=minilm --input_file=reviews.txt --output_dir=OUT": "OUT",
    "extract_features --input_file=input.txt --init_checkpoint=bert-base --layers=-1 "
    "--output_file=OUT": "OUT",
    "beam_predict --model_dir=out/model --input_file=reviews.txt --output_file=OUT "
    "--output_format=text --direct_num_workers=1": "OUT",
    "quantize_model --model_dir=out/model --output_dir=OUT": "OUT",
    f"distill {SST_2} --teacher=out/model --num_hidden_layers=2 --num_train_epochs=1 "
    "--output_dir=OUT": "OUT",
    f"prune_heads {SST_2} --model_dir=out/model --prune_share=0.3 --output_dir=OUT": "OUT",
    "convert_checkpoint --input=uncased_L-12_H-768_A-12 --output=OUT --format=huggingface": "OUT",
    "export_saved_model --model_dir=out/model --export_dir=OUT": "OUT",
    "export_litert --input=out/model --output=OUT/model.tflite --verify": "OUT/model.tflite",
}
QUICK = ("export_saved_model",)  # the others run in the full suite
ELSEWHERE = {
    "compare_runs": "prints a table",
    "export_onnx": "needs tf2onnx; tests/serving/test_other_readers.py starts it",
    "inspect_model": "serves a page; tests/inspection",
    "launch_workers": "starts other programs; tests/tools/test_launch_workers.py starts it",
    "estimate_memory": "prints an estimate; tests/tools/test_estimate_memory.py starts it",
    "search": "prints what it finds; tests/tools/test_search.py starts it",
    "serve": "runs until it is stopped; tests/server starts it",
    "serving_client": "prints answers; tests/tools/test_serving_client.py starts it",
}
START_UP = re.compile(r"^[IWEF]\d{4} |All log messages before absl|oneDNN|cuInit|\.cc:\d+\]", re.M)
SOURCES = re.compile(r"site-packages|/bert_tf/|Traceback")
BAR = re.compile(r"\r|\x08|\x1b\[|it/s")


@pytest.fixture(scope="module")
def directory(tmp_path_factory, tiny_vocabulary):
    directory = tmp_path_factory.mktemp("printed")
    write_document_files(directory, tiny_vocabulary)
    return directory


def commands():
    for number, (line, made) in enumerate(PROGRAMS.items()):
        name = line.split()[0]
        marks = [] if name in QUICK else [pytest.mark.full]
        yield pytest.param(line, made, id=f"{number}-{name}", marks=marks)


@pytest.mark.parametrize("line,made", commands())
def test_a_run_prints_what_its_user_needs(directory, line, made):
    output = directory / "printed"
    shutil.rmtree(output, ignore_errors=True)
    output.unlink(missing_ok=True)
    name, *flags = shlex.split(line.replace("OUT", "printed"))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    program = REPOSITORY / "tools" / f"{name}.py"
    result = run_program(program, *flags, cwd=directory, env=environment, timeout=600)
    assert result.returncode == 0, result.stderr
    for text in (result.stdout, result.stderr):
        assert not START_UP.search(text), text
        assert not SOURCES.search(text), text
        assert not BAR.search(text), text
    messages = result.stderr.splitlines()
    assert len(set(messages)) == len(messages), result.stderr
    if made is not None:
        place = made.replace("OUT", "printed")
        assert any(place in line for line in result.stdout.splitlines()[-2:]), result.stdout


def test_every_program_is_here():
    started = {line.split()[0] for line in PROGRAMS}
    assert started | ELSEWHERE.keys() == set(TOOLS)
    assert not started & ELSEWHERE.keys()
