"""One tiny model, exported once, and one server process for all tests of the server."""

import dataclasses

import pytest

from tests.server.process import ServerProcess

# Small, so that tests reach them with little.
LIMITS = {
    "max_body_bytes": 100_000,
    "max_text_length": 2000,
    "max_rows": 64,
    "max_waiting": 16,
    "read_timeout_seconds": 2,
    "write_timeout_seconds": 1,
    "idle_timeout_seconds": 3,
}


@pytest.fixture(scope="session")
def tiny_classifier(tiny_config, tiny_vocabulary):
    import tensorflow as tf

    from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer

    tf.keras.utils.set_random_seed(5)
    return BertTextClassifier(
        BertBackbone(dataclasses.replace(tiny_config, num_hidden_layers=1)),
        labels=["bad", "good"],
        # Which keeps case: a graph of a third as many operations for every server to load.
        tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
        max_length=20,
    )


@pytest.fixture(scope="session")
def exported(tiny_classifier, tmp_path_factory):
    """A folder with version 1, exported as the server does it for itself in another process."""
    from bert_tf.server.export_for_server import export_for_server

    saved = tmp_path_factory.mktemp("saved") / "model"
    tiny_classifier.save_pretrained(saved)
    folder = tmp_path_factory.mktemp("exported")
    export_for_server(saved, folder, "float32")
    return folder


@pytest.fixture(scope="session")
def server(exported):
    flags = [f"--{name}={value}" for name, value in LIMITS.items()]
    with ServerProcess(exported, *flags) as process:
        yield process
        status, printed = process.stop()
        assert status == 0, printed
        assert "Traceback" not in printed, printed
