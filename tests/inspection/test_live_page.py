"""`bert-tf inspect_model` as a process: what the page asks for, what it refuses, and its flags."""

import base64
import concurrent.futures
import http.client
import json
import re
import socket
import zlib

import numpy as np
import pytest

from bert_tf import BertTextClassifier, inspection
from bert_tf.inspection.attributions import without_heads
from bert_tf.inspection.page import page_data
from tests.inspection.browser import Browser
from tests.inspection.models import make
from tests.server.process import PATIENCE, ServerProcess
from tests.tools.running import run

TEXT = "the good film abc ."
HOSTILE = "</script><script>alert(1)</script>"
JSON = {"Content-Type": "application/json"}
GOOD = {"model": 0, "text": TEXT, "pair": None}


class InspectionProcess(ServerProcess):
    """A running tools/inspect_model.py."""

    PROGRAM, FLAGS = "inspect_model", ()
    STARTED = r"^Inspecting .+: http://.*:(\d+)/"


@pytest.fixture(scope="module")
def classifier(tiny_config, tiny_vocabulary):
    return make(BertTextClassifier, tiny_config, tiny_vocabulary, labels=["bad", "good", "fair"])


@pytest.fixture(scope="module")
def saved(classifier, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "tiny"
    classifier.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def server(saved):
    with InspectionProcess(saved, f"--text={HOSTILE}", "--text_pair_b=b", "--text_b=a") as process:
        yield process
        status, printed = process.stop()
        assert status == 0, printed
        assert "Traceback" not in printed, printed


def embedded_data(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))


def post(server, path="/inspect", body=GOOD, headers=JSON):
    return server.json("POST", path, body, headers)


def test_the_page_has_a_form_with_the_texts_of_the_flags(server):
    status, headers, page = server.ask("GET", "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert (headers["X-Frame-Options"], headers["X-Content-Type-Options"]) == ("DENY", "nosniff")
    page = page.decode()
    assert "connect-src 'self'" in page and "default-src 'none'" in page
    live = embedded_data(page)["live"]
    assert live["models"] == ["tiny"]
    assert {"text": HOSTILE, "text_b": "a", "pair_b": "b"}.items() <= live.items()
    assert "pair" not in live and HOSTILE not in page


def test_an_inspection_is_that_of_the_model(server, classifier):
    status, answer = post(server, body={**GOOD, "pair": "bad", "target": 2})
    assert status == 200
    found = inspection.inspect_text(classifier, TEXT, "bad", target="fair", model_name="tiny")
    expected = json.loads(json.dumps(page_data(found)))
    received = answer["inspection"]
    packed = received.pop("attentions")[1]
    weights = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8) / 255
    np.testing.assert_allclose(weights**2, found.attentions[1].reshape(-1), atol=0.005)
    assert received["target"]["number"] == 2 and received["texts"] == [TEXT, "bad"]
    for name in ("model", "pieces", "ids", "starts", "ends", "words", "textOf", "kept", "leftOut"):
        assert received[name] == expected[name], name
    np.testing.assert_allclose(received["headScores"], expected["headScores"], atol=1e-3)


def test_heads_are_switched_off_together(server, classifier):
    heads = [[0, 1], [1, 3]]
    status, answer = post(server, "/heads", {**GOOD, "heads": heads})
    found = inspection.inspect_text(classifier, TEXT)
    expected = without_heads(classifier, found.row, found.target, heads)
    assert status == 200
    assert [one["label"] for one in answer["answers"]] == [one.label for one in expected]
    scores = [one["score"] for one in answer["answers"]]
    np.testing.assert_allclose(scores, [one.score for one in expected], atol=1e-4)
    assert np.abs(np.subtract(scores, [one.score for one in found.target.answers])).max() > 1e-3


def test_a_text_longer_than_the_model_is_cut(server, classifier):
    status, answer = post(server, body={**GOOD, "text": "film " * 3000})
    longest = classifier.backbone.config.max_position_embeddings
    assert status == 200
    assert len(answer["inspection"]["pieces"]) == longest
    assert answer["inspection"]["numCut"] == 3000 - (longest - 2)


def test_requests_are_refused_when_eight_wait(server):
    """All send at once what takes the one thread of the model a while."""
    body = {**GOOD, "text": "film " * 3000}
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: post(server, body=body), range(24)))
    statuses = [status for status, _ in answers]
    assert set(statuses) == {200, 429} and statuses.count(200) >= 8
    refused = [answer["error"] for status, answer in answers if status == 429]
    assert set(refused) == {"Other texts are being inspected. Try again later."}
    assert post(server)[0] == 200


BAD = {
    "nothing": (b"", "The body must be JSON"),
    "no JSON": (b"text=good", "The body must be JSON"),
    "half": (b'{"model": 0, "text"', "The body must be JSON"),
    "no UTF-8": (b'{"model": 0, "text": "\xff"}', "The body must be JSON"),
    "nested": (b"[" * 100_000, "The body must be JSON"),
    "a list": (b"[]", "must be an object"),
    "no text": (b'{"model": 0}', "`text` must be a string"),
    "a number": (b'{"model": 0, "text": 1}', "`text` must be a string"),
    "NaN": (b'{"model": 0, "text": "a", "target": NaN}', "`target` must be"),
    "a name more": (b'{"model": 0, "text": "a", "txt": "b"}', "no other keys than"),
    "no model": (b'{"text": "a"}', "`model` must be"),
    "model true": (b'{"model": true, "text": "a"}', "`model` must be"),
    "model 1": (b'{"model": 1, "text": "a"}', "`model` must be below 1. Received: 1"),
    "model -1": (b'{"model": -1, "text": "a"}', "`model` must be"),
    "target": (b'{"model": 0, "text": "a", "target": 3}', "one of the 3 answers: bad, good, fair"),
    "half a character": (b'{"model": 0, "text": "\\ud800"}', "half of a surrogate pair"),
    "long": (json.dumps({**GOOD, "text": "a" * 20_001}).encode(), "`text` must have at most 20000"),
    "long pair": (
        json.dumps({**GOOD, "pair": "a" * 20_001}).encode(),
        "`pair` must have at most 20000 characters. Received: 20001",
    ),
    "a head": (b'{"model": 0, "text": "a", "heads": [1]}', "`heads[0]` must be a list"),
    "no such head": (b'{"model": 0, "text": "a", "heads": [[0, 4]]}', "a head in [0, 4)"),
    "huge": (b'{"model": 0, "text": "a", "heads": [[0, 1e99]]}', "`heads[0][1]` must be"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bodies(server, name):
    body, message = BAD[name]
    status, answer = post(server, "/heads", body)
    assert status == 400 and message in answer["error"]
    assert len(answer["error"]) < 1000


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_other_content_types(server, kind):
    """Those that a page of another site can send without asking first."""
    headers = {} if kind is None else {"Content-Type": kind}
    status, answer = post(server, body=json.dumps(GOOD), headers=headers)
    assert status == 415 and "must be application/json" in answer["error"]


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_large_body_is_refused(server, is_chunked):
    body = b'{"model": 0, "text": "' + b"a" * 400_000
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    chunks = (body[start : start + 50_000] for start in range(0, len(body), 50_000))
    connection.request("POST", "/inspect", chunks if is_chunked else body, JSON)
    response = connection.getresponse()
    assert response.status == 413
    assert "at most 320000 bytes" in json.loads(response.read())["error"]
    connection.close()


OWN_HOSTS = ("localhost:9", "127.0.0.1", "127.0.0.1:8502", "[::1]:8502")
OTHER_HOSTS = ("evil.example", "192.0.2.77:8502", "[fd00::77]", "127.0.0.1.evil.example", "[", "")


@pytest.mark.parametrize("host", [*OWN_HOSTS, *OTHER_HOSTS])
def test_hosts(server, host):
    """A site can give its own name the address of this machine, and then read the answers."""
    for method, path in (("GET", "/"), ("POST", "/inspect")):
        status, _, body = server.ask(
            method, path, json.dumps({**GOOD, "text": "a"}), {**JSON, "Host": host}
        )
        assert status == (200 if host in OWN_HOSTS else 403)
        if host not in OWN_HOSTS:
            assert "opened by the address that is printed" in json.loads(body)["error"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "own"])
def test_origins(server, origin):
    own = f"http://127.0.0.1:{server.port}"
    headers = {**JSON, "Origin": own if origin == "own" else origin}
    status, answer = post(server, headers=headers)
    assert status == (200 if origin == "own" else 403)
    if origin != "own":
        assert "Requests from another origin are refused" in answer["error"]


def test_other_paths_and_methods(server):
    for method, path, status in (
        ("GET", "/page.js", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/inspect", 405),
        ("DELETE", "/", 405),
        ("OPTIONS", "/inspect", 405),  # a preflight of another site
    ):
        answered, headers, body = server.ask(method, path)
        assert answered == status and "error" in json.loads(body)
        assert "Access-Control-Allow-Origin" not in headers


def test_a_server_for_other_machines_knows_its_addresses(saved):
    """It accepts the address that a connection came in at, and not another one."""
    with InspectionProcess(saved, "--host=0.0.0.0") as process:
        for host, status in (("127.0.0.1", 200), ("192.0.2.77", 403), ("evil.example", 403)):
            assert process.ask("GET", "/", headers={"Host": host})[0] == status
        connection = http.client.HTTPConnection(own_address(), process.port, timeout=PATIENCE)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()


def own_address():
    """The address that other machines of the network see; 127.0.0.1 without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("198.51.100.1", 9))  # which sends nothing
        except OSError:
            return "127.0.0.1"
        return one.getsockname()[0]


def test_a_port_that_is_used(tmp_path):
    """It is found before the model is read: this directory has none."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run("inspect_model", f"--model={tmp_path}", f"--port={port}")
    assert result.returncode == 1
    assert "`host` and `port` must be a free address" in result.stderr
    assert "Traceback" not in result.stderr


WRONG_FLAGS = {
    "--model=nowhere": "--model must be a directory. Received: --model=nowhere",
    "--model=. --model_b=nowhere": "--model_b must be a directory",
    "--model=. --output=page.html": "--text must be given with --output",
    "--model=. --text=a --output=.": "--output must be a file. Received: the directory .",
    "--model=. --text=a --text_pair_b=b": "--text_pair_b must be given with --text_b or --model_b",
    "--model=. --port=70000": "port",
    "--model=. --max_tokens=0": "max_tokens",
    "--model=. --text=a --output=p.html --port=80 --host=::": "--host and --port must be given "
    "without --output, which writes a file and serves no page. Received: --host=::, --port=80",
    "--text=a": "--model",
}


@pytest.mark.parametrize("flags", WRONG_FLAGS)
def test_wrong_flags_are_found_before_any_work(tmp_path, flags):
    """`.` is a directory without a model: reading it would give another error."""
    result = run("inspect_model", *flags.split(), directory=tmp_path)
    assert result.returncode == 1
    assert WRONG_FLAGS[flags] in result.stderr
    assert "Traceback" not in result.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--text_pair=bad", "--text_b=film"], [["good", "bad"], ["film"]]),
        pytest.param(
            ["--text_pair=bad", "--text_b=film", "--text_pair_b=a"],
            [["good", "bad"], ["film", "a"]],
            marks=pytest.mark.full,
        ),
        pytest.param(
            ["--text_pair=bad", "--model_b=MODEL"],
            [["good", "bad"], ["good", "bad"]],
            marks=pytest.mark.full,
        ),
        (["--text_pair_b=a", "--model_b=MODEL"], [["good"], ["good", "a"]]),
    ],
)
def test_each_text_has_its_own_pair(saved, tmp_path, flags, expected):
    path = tmp_path / "page.html"
    flags = [flag.replace("MODEL", str(saved)) for flag in flags]
    result = run("inspect_model", f"--model={saved}", "--text=good", f"--output={path}", *flags)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"Written: {path}\n"
    data = embedded_data(path.read_text(encoding="utf-8"))
    assert [one["texts"] for one in data["inspections"]] == expected


@pytest.mark.browser
def test_a_text_is_typed_and_heads_are_switched_off(server, classifier, tmp_path):
    browser = Browser(tmp_path)
    try:
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.value("get('input-text').value = 'the good film'; get('input-text').focus()")
        browser.value("get('input-text_b').value = get('input-pair_b').value = ''")
        browser.key("Tab")
        browser.value("get('go').click()")
        browser.wait_for("panes.length === 1 && panes[0].body.dataset.shown === 'attention'")
        browser.value("change({tab: 'heads'})")
        browser.wait_for("panes[0].body.dataset.shown === 'heads'")
        # Three clicks at once: one request is on its way, and the last set of heads is shown.
        browser.value(
            "['0 1', '1 3', '1 0'].forEach(key => "
            "document.querySelector(`[data-key='${key}']`).click())"
        )
        browser.wait_for("panes[0].without && panes[0].off.size === 3 && !panes[0].asking")
        found = inspection.inspect_text(classifier, "the good film")
        expected = without_heads(classifier, found.row, found.target, [(0, 1), (1, 3), (1, 0)])
        scores = browser.value("panes[0].without.map(answer => answer.score)")
        assert scores == pytest.approx([one.score for one in expected], abs=1e-4)
        # Another answer is explained, and an error of the server is shown.
        browser.value("document.querySelectorAll('button.name')[2].click()")
        browser.wait_for("panes[0].asked.target !== undefined")
        worst = found.target.answers[2].label
        assert browser.value("panes[0].data.target.name") == worst
        # Of two answers that are asked for, the last is shown, also if the first reply comes later.
        browser.value(
            "const real = fetch, held = new Promise(done => { window.release = done; });"
            "window.fetch = (...request) => real(...request).then("
            "reply => JSON.parse(request[1].body).target === 1 ? held.then(() => reply) : reply)"
        )
        browser.value("window.both = [1, 2].map(number => panes[0].explain(number))")
        browser.value("both[1]")
        browser.value("release(); both[0]")
        assert browser.value("panes[0].data.target.number") == 2
        browser.value("get('input-text').value = '\\ud800'; get('go').click()")
        browser.wait_for("get('error').textContent.includes('surrogate')")
        assert [one for one in browser.problems if "400" not in str(one)] == []
    finally:
        browser.close()
