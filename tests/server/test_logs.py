"""What the log says and when, and which requests it belongs to."""

import json
import logging
import os
import pathlib
import re
import shutil
import time

import pytest

from bert_tf.server.logs import LogFormatter, begin_request
from tests.server.process import PATIENCE, ServerProcess
from tests.tools.running import start

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


class Request:
    """Has what is read of aiohttp's request."""

    def __init__(self, **headers):
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def _formatted(form, message, *values):
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
        record = logging.LogRecord("bert_tf", logging.ERROR, "", 0, message, values, info)
        return LogFormatter(form).format(record)


def test_lines_of_text_and_of_json():
    identifier = begin_request(Request(X_Request_ID="of-the-client:7"))
    assert identifier == "of-the-client:7"
    first, *trace = _formatted("text", "it is %s", "so").splitlines()
    assert re.fullmatch(TIME + r" ERROR \[of-the-client:7\] it is so", first)
    assert trace[0].startswith("Traceback")
    (line,) = _formatted("json", "it is %s", "so").splitlines()
    values = json.loads(line)
    assert re.fullmatch(TIME, values.pop("time"))
    assert "ValueError: a\nb" in values.pop("exception")
    expected = {"level": "ERROR", "message": "it is so", "request_id": "of-the-client:7"}
    assert values == expected


@pytest.mark.parametrize("sent", [None, "", "two words", "line\nbreak", "é", "a" * 129])
def test_other_ids_are_replaced(sent):
    headers = {} if sent is None else {"X_Request_ID": sent}
    first, second = begin_request(Request(**headers)), begin_request(Request(**headers))
    assert re.fullmatch("[0-9a-f]{16}", first) and first != second


def test_answers_have_the_id_of_their_request(server):
    for path in ("/healthz", "/v1/models/other"):
        _, headers, _ = server.ask("GET", path, headers={"X-Request-ID": "mine-1"})
        assert headers["X-Request-ID"] == "mine-1"
        assert re.fullmatch("[0-9a-f]{16}", server.ask("GET", path)[1]["X-Request-ID"])


def test_refused_requests_are_counted_by_flag(server):
    names = {
        flag: f'bert_tf_requests_refused_total{{flag="{flag}"}}'
        for flag in ("max_rows", "allowed_hosts")
    }
    before = {flag: server.metric(name) for flag, name in names.items()}
    server.predict({"instances": ["a"] * 65})
    server.json("GET", "/v1/models/tiny", headers={"Host": "evil.example"})
    for flag, name in names.items():
        assert server.metric(name) == before[flag] + 1
    assert server.metric("bert_tf_requests_waiting") == 0
    assert server.metric("bert_tf_model_loads_failed_total") == 0


def test_a_replaced_model_in_the_log_and_the_status(exported, tmp_path):
    shutil.copytree(exported / "1", tmp_path / "1")
    with ServerProcess(tmp_path, "--log_format=json", "--poll_seconds=0.05") as server:
        (tmp_path / "1" / "saved_model.pb").write_bytes(b"nonsense")
        end, message = time.monotonic() + PATIENCE, ""
        while not message:
            assert time.monotonic() < end
            _, answer = server.json("GET", "/v1/models/tiny")
            (status,) = answer["model_version_status"]
            assert status["state"] == "AVAILABLE"
            message = status["status"]["error_message"]
        assert "still answers" in message and status["status"]["error_code"] == "UNKNOWN"
        assert server.predict({"instances": ["a"]})[0] == 200
        assert server.metric("bert_tf_model_loads_failed_total") == 1
        status, printed = server.stop()
    assert status == 0
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    levels = {" ".join(line["message"].split()[:6]): line["level"] for line in lines}
    assert levels["Version 1 of tiny is loaded"] == "INFO", printed
    assert levels["Version 1 of tiny could not"] == "ERROR", printed


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux")
def test_sigterm_while_a_model_is_loaded_ends_at_once(tiny_classifier, tmp_path):
    """Also the process that exports it, and the files of both."""
    tiny_classifier.save_pretrained(tmp_path / "model")
    (tmp_path / "temporary").mkdir()
    process = start(
        "serve",
        f"--model={tmp_path}/model",
        "--port=0",
        output=tmp_path / "output",
        environment={"TMPDIR": str(tmp_path / "temporary")},
        prepare=_forget_the_temporary_folder,
    )
    end = time.monotonic() + PATIENCE
    while not _processes(tmp_path):
        assert process.is_alive() and time.monotonic() < end, process.text()
        time.sleep(0.01)
    process.terminate()
    started = time.monotonic()
    assert process.wait(PATIENCE) == 0, process.text()
    assert time.monotonic() - started < 3  # an export takes several times as long
    assert "Stopped: 0 requests answered" in process.text()
    assert not any((tmp_path / "temporary").iterdir())
    while _processes(tmp_path):
        assert time.monotonic() < end
        time.sleep(0.01)


def _forget_the_temporary_folder():
    import tempfile

    tempfile.tempdir = None  # of the process that this one was forked from


def _processes(folder):
    """The processes that export a model of this folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if "bert_tf.server.export_for_server" in words and f"{folder}/model" in words:
            found.append(words)
    return found
