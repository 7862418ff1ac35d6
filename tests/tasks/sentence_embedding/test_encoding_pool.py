"""Several processes give the vectors of one."""

import os
import signal

import numpy as np
import pytest

from bert_tf import BertBackbone, BertSentenceEncoder, BertTokenizer
from bert_tf.errors import ConfigError, UserError
from bert_tf.tasks.sentence_embedding import EncodingPool


@pytest.fixture(scope="module")
def directory(tiny_config, tiny_vocabulary, tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder")
    tokenizer = BertTokenizer(tiny_vocabulary)
    BertSentenceEncoder(BertBackbone(tiny_config), tokenizer=tokenizer).save_pretrained(path)
    return path


@pytest.mark.full
def test_several_processes_give_the_vectors_of_one(directory):
    encoder = BertSentenceEncoder.from_pretrained(directory, pooling="max")
    texts = [" ".join("abcdefgh"[: 1 + number % 8]) for number in range(21)]
    with EncodingPool(directory, 2, precision="float32", pooling="max") as pool:
        expected = encoder.encode(texts, prompt="good ")
        np.testing.assert_allclose(pool.encode(texts, prompt="good "), expected, atol=1e-5)
        assert pool.encode([]).shape == (0, 32)
        with pytest.raises(UserError, match="prompt_name"):
            pool.encode(texts, prompt_name="none")
        with pytest.raises(UserError, match="list of strings"):
            pool.encode("a text")
        os.kill(next(iter(pool._pool._processes)), signal.SIGKILL)
        with pytest.raises(UserError, match="one has ended"):
            pool.encode(texts)


@pytest.mark.full
def test_errors_of_a_worker_are_raised_here(directory):
    with EncodingPool(directory, 1, pooling="none") as pool:
        with pytest.raises(UserError, match="pooling"):
            pool.encode(["a"])


def test_wrong_arguments_start_no_process(directory):
    with pytest.raises(ConfigError, match="num_processes"):
        EncodingPool(directory, 0)
    with pytest.raises(UserError, match="2 items, one for each process"):
        EncodingPool(directory, 2, devices=["0"])
