"""New versions, broken versions, versions that go."""

import asyncio
import os
import re
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, ops
from bert_tf.errors import UserError
from bert_tf.server import model_versions
from bert_tf.server.batcher import Batcher
from bert_tf.server.errors import RequestError
from bert_tf.server.export_for_server import export_for_server
from bert_tf.server.limits import Limits
from bert_tf.server.metrics import Metrics
from bert_tf.server.model_directory import fingerprint, open_model
from bert_tf.server.model_versions import ModelVersions
from bert_tf.serving.versions import find_versions, is_model


class Echo(tf.Module):
    """Text in, text out."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def echo(self, text):
        return {"text": tf.identity(text)}


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    path = tmp_path_factory.mktemp("echo") / "1"
    module = Echo()
    tf.saved_model.save(module, str(path), {"serving_default": module.echo})
    return path


def _versions(folder):
    def batcher(model):
        return Batcher(model, 100, 0.0, Limits(), Metrics())

    return ModelVersions("echo", folder, batcher)


def _states(versions):
    return {number: state.state for number, state in versions.states.items()}


def test_a_new_version_answers_before_the_old_one_goes(echo, tmp_path):
    async def scenario():
        shutil.copytree(echo, tmp_path / "1")
        versions = _versions(tmp_path)
        await versions.load_first()
        shutil.copytree(echo, tmp_path / "10")
        shutil.copytree(echo, tmp_path / "9")  # not the newest
        with versions.use() as old:
            await versions.look_again()
            with versions.use() as new:
                assert (old.number, new.number) == (1, 10)
            assert _states(versions) == {1: "UNLOADING", 10: "AVAILABLE"}
            with pytest.raises(RequestError, match="Specific"):
                with versions.use(1):
                    pass
            assert old.model.signatures  # still there for whoever is inside
        await versions.close()
        assert _states(versions) == {1: "END", 10: "END"}
        assert old.model is None

    asyncio.run(scenario())


def test_a_broken_version_is_passed_over_and_tried_again_when_it_changes(echo, tmp_path, caplog):
    async def scenario():
        shutil.copytree(echo, tmp_path / "1")
        versions = _versions(tmp_path)
        await versions.load_first()
        broken = tmp_path / "2"
        broken.mkdir()
        (broken / "saved_model.pb").write_bytes(b"nonsense")
        for _ in range(3):
            await versions.look_again()
        assert _states(versions) == {1: "AVAILABLE", 2: "END"}
        assert "must be a valid SavedModel" in versions.states[2].error
        assert len(caplog.records) == 1
        shutil.rmtree(broken)
        shutil.copytree(echo, broken)
        await versions.look_again()
        assert _states(versions)[2] == "AVAILABLE"
        shutil.rmtree(broken)  # taken back: the one before answers
        await versions.look_again()
        assert versions.current.number == 1
        shutil.rmtree(tmp_path / "1")  # all gone: the last one stays
        await versions.look_again()
        assert versions.current.number == 1
        await versions.close()

    asyncio.run(scenario())


def _replace(echo, folder):
    """Other files under the same names, as a copy over them or a later training gives."""
    shutil.copytree(echo, folder, dirs_exist_ok=True)
    status = (folder / "saved_model.pb").stat()
    os.utime(folder / "saved_model.pb", ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


@pytest.mark.parametrize("is_single", [True, False])
def test_a_version_whose_files_are_replaced_is_loaded_again(echo, tmp_path, is_single):
    async def scenario():
        folder = tmp_path / "1"
        shutil.copytree(echo, folder)
        versions = _versions(folder if is_single else tmp_path)
        await versions.load_first()
        with versions.use() as old:
            for _ in range(2):
                await versions.look_again()
            assert versions.current is old  # nothing has changed
            _replace(echo, folder)
            await versions.look_again()
            assert versions.current is old  # somebody may still be writing
            await versions.look_again()
            with versions.use(1) as new:
                assert new is not old and new.model is not old.model
            assert old.model is not None and _states(versions) == {1: "AVAILABLE"}
        await versions.close()
        assert old.model is None and _states(versions) == {1: "END"}

    asyncio.run(scenario())


def test_files_that_are_replaced_by_a_broken_model(echo, tmp_path, caplog):
    async def scenario():
        shutil.copytree(echo, tmp_path / "1")
        versions = _versions(tmp_path)
        await versions.load_first()
        old = versions.current
        (tmp_path / "1" / "saved_model.pb").write_bytes(b"nonsense")
        for _ in range(4):
            await versions.look_again()
        assert versions.current is old and _states(versions) == {1: "AVAILABLE"}
        assert "the model before them still answers" in versions.states[1].error
        errors = [record for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 1 and "must be a valid SavedModel" in errors[0].getMessage()
        assert _value(versions, "bert_tf_model_loads_failed_total") == 1
        _replace(echo, tmp_path / "1")
        for _ in range(2):
            await versions.look_again()
        assert versions.current is not old and versions.states[1].error == ""
        assert _value(versions, "bert_tf_model_loads_total") == 2
        await versions.close()

    asyncio.run(scenario())


def _value(versions, name):
    text, _ = versions.metrics.page()
    return float(re.search(rf"^{name} (.*)$", text.decode(), re.MULTILINE).group(1))


def test_logs_of_a_training_are_no_change_of_a_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    before = fingerprint(tmp_path)
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "events.out.tfevents.1").write_text("")
    (tmp_path / "log.jsonl").write_text("")
    assert fingerprint(tmp_path) == before != ()
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    assert fingerprint(tmp_path) != before


def test_what_is_found(echo, tmp_path):
    assert find_versions(tmp_path / "nothing") == {} and find_versions(tmp_path) == {}
    for name in ("1", "007", "3.5", "-4", ".8", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "9").write_text("a file")
    assert find_versions(tmp_path) == {1: str(tmp_path / "1"), 7: str(tmp_path / "007")}
    assert is_model(echo) and find_versions(echo) == {1: str(echo)}


def test_requests_do_not_wait_while_versions_are_looked_for(echo, tmp_path, monkeypatch):
    """A writer of the directory may keep `find_versions` waiting."""
    may_end = threading.Event()

    def waiting(directory):
        assert may_end.wait(60)
        return find_versions(directory)

    async def scenario():
        shutil.copytree(echo, tmp_path / "1")
        versions = _versions(tmp_path)
        await versions.load_first()
        monkeypatch.setattr(model_versions, "find_versions", waiting)
        looking = asyncio.create_task(versions.look_again())
        await asyncio.sleep(0)  # it has begun
        with versions.use() as current:
            assert current.number == 1 and not looking.done()
        may_end.set()
        await looking
        await versions.close()

    asyncio.run(scenario())


def test_nothing_to_serve(tmp_path):
    with pytest.raises(UserError, match="folders named 1, 2"):
        asyncio.run(_versions(tmp_path).load_first())
    (tmp_path / "1").mkdir()
    with pytest.raises(UserError, match="must be a valid SavedModel"):
        asyncio.run(_versions(tmp_path).load_first())


def test_a_model_of_this_package_runs_without_padding(exported, tiny_classifier):
    model = open_model(exported / "1")
    assert model.padding_free == (ops.active_backend() == "native")
    text = np.array([b"the good film."], object)
    outputs = model.run(model.signatures["serving_default"], {"text": text})
    expected = tiny_classifier(tf.constant(["the good film."]), training=False)
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_classifier_of_pairs(tiny_classifier, tmp_path, precision):
    tiny_classifier.save_pretrained(tmp_path / "model")
    model = open_model(tmp_path / "model", pairs=True, precision=precision)
    first, second = [b"the good film."], [b"bad"]
    given = {"text": np.array(first, object), "pair": np.array(second, object)}
    outputs = model.run(model.signatures["serving_default"], given)
    expected = tiny_classifier((tf.constant(first), tf.constant(second)), training=False)
    error = np.abs(outputs["logits"] - expected).max()
    assert (1e-6 < error < 0.02) if _computes_in_bfloat16(precision) else error < 1e-5


def _computes_in_bfloat16(precision):
    return precision == "bfloat16" and ops.active_backend() == "native"


def test_a_model_without_a_task_is_refused(tiny_config, tmp_path):
    BertBackbone(tiny_config).save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match="must be a task model"):
        export_for_server(tmp_path / "model", tmp_path / "out", "float32")
    assert not (tmp_path / "out").exists()


def test_versions_with_labels_stay_loaded(echo, tmp_path):
    async def scenario():
        for number in (1, 2, 3):
            shutil.copytree(echo, tmp_path / str(number))
        versions = _versions(tmp_path)
        versions.labels = {"stable": 1, "canary": 4, "old": 1}
        await versions.load_first()
        assert _states(versions) == {1: "AVAILABLE", 3: "AVAILABLE"}
        assert [versions.number_of(None, label) for label in ("stable", None)] == [1, None]
        with pytest.raises(RequestError, match="Unrecognized servable version label: x"):
            versions.number_of(None, "x")
        with versions.use(1) as stable, versions.use() as newest:
            assert (stable.number, newest.number) == (1, 3)
        with pytest.raises(RequestError, match="Specific"):
            with versions.use(4):
                pass
        for number in (4, 5):
            shutil.copytree(echo, tmp_path / str(number))
        await versions.look_again()
        with versions.use(4) as canary, versions.use() as newest:
            assert (canary.number, newest.number) == (4, 5)
        assert {n for n, state in _states(versions).items() if state == "AVAILABLE"} == {1, 4, 5}
        with versions.use(1) as same:
            assert same is stable
        _replace(echo, tmp_path / "1")
        for _ in range(2):
            await versions.look_again()
        with versions.use(1) as again:
            assert again is not stable and versions.current is newest
        await versions.close()
        assert {_states(versions)[number] for number in (1, 3, 4, 5)} == {"END"}

    asyncio.run(scenario())
