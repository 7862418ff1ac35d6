"""Who may ask: other sites in a browser may not, and with a key only those who know it."""

import json
import re

import pytest

from bert_tf.errors import UserError
from bert_tf.server import page_policy
from bert_tf.server.access import Access
from bert_tf.server.api_keys import read_api_keys
from tests.server.process import ServerProcess

PREDICT = "/v1/models/tiny:predict"
BODY = json.dumps({"instances": ["the good film."]})
JSON = {"Content-Type": "application/json"}
SITE = "https://app.example"
KEYS = ("first-key", "second-key")
WITH_KEY = {"Authorization": f"Bearer {KEYS[1]}"}


@pytest.fixture(scope="module")
def guarded(exported, tmp_path_factory):
    """A server that a site, another host name and two keys are allowed to use."""
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("\n".join(["", *KEYS, ""]))
    flags = (
        f"--api_key_file={path}",
        "--allowed_hosts=reviews.example",
        f"--allowed_origins={SITE}",
    )
    with ServerProcess(exported, *flags) as process:
        yield process
        status, printed = process.stop()
        assert status == 0 and "Traceback" not in printed, printed
        assert not any(key in printed for key in KEYS)


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "[::1]:8501"])
def test_hosts_of_this_machine(server, host):
    assert server.json("GET", "/v1/models/tiny", headers={"Host": host})[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "192.0.2.77", "127.0.0.1.evil.example", "[", ""])
def test_other_hosts(server, host):
    """A site can give its own name the address of this machine, and then read the answers."""
    for method, path in (("GET", "/"), ("GET", "/page.json"), ("POST", PREDICT)):
        status, answer = server.json(method, path, BODY, {"Host": host})
        assert status == 403 and "--allowed_hosts" in answer["error"]
    assert server.json("GET", "/healthz", headers={"Host": host})[0] == 200  # of a load balancer


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_a_site_that_sends_a_form(server, origin, kind):
    headers = {"Origin": origin, **({"Content-Type": kind} if kind else {})}
    status, answer = server.json("POST", PREDICT, BODY, headers)
    assert status == 403 and "--allowed_origins" in answer["error"]


def test_content_types(server):
    """Clients that are no browser may send any, as with TensorFlow Serving; curl does."""
    own = {"Origin": f"http://127.0.0.1:{server.port}"}
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json"):
        assert server.json("POST", PREDICT, BODY, {"Content-Type": kind})[0] == 200
        status, answer = server.json("POST", PREDICT, BODY, {"Content-Type": kind, **own})
        assert status == (200 if kind == "application/json" else 415), answer


def test_headers(server):
    for path in ("/", "/page.json", "/v1/models/tiny", "/elsewhere", "/metrics"):
        _, headers, _ = server.ask("GET", path)
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers


def test_the_policy_of_the_page_is_that_of_its_script(server):
    _, headers, page = server.ask("GET", "/")
    (style,) = re.findall(r"<style>(.*?)</style>", page.decode(), re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page.decode(), re.DOTALL)
    assert headers["Content-Security-Policy"].startswith(page_policy(style, script, "'self'"))


def test_an_allowed_site(guarded):
    asked = {
        "Origin": SITE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
        "Access-Control-Request-Private-Network": "true",
    }
    status, headers, _ = guarded.ask("OPTIONS", PREDICT, headers=asked)
    assert status == 204 and headers["Access-Control-Allow-Origin"] == SITE
    assert headers["Access-Control-Allow-Headers"] == "authorization,content-type"
    assert headers["Access-Control-Allow-Methods"] == "GET, POST"
    assert headers["Access-Control-Allow-Private-Network"] == "true"
    sent = {"Origin": SITE, **JSON, **WITH_KEY}
    status, headers, _ = guarded.ask("POST", PREDICT, BODY, sent)
    assert status == 200
    assert (headers["Access-Control-Allow-Origin"], headers["Vary"]) == (SITE, "Origin")
    # A site reads the errors too.
    status, headers, _ = guarded.ask("POST", PREDICT, "{}", sent)
    assert status == 400 and headers["Access-Control-Allow-Origin"] == SITE
    for origin in ("http://app.example", SITE + ".evil.example"):
        assert guarded.ask("OPTIONS", PREDICT, headers={**asked, "Origin": origin})[0] == 403


def test_headers_that_an_answer_cannot_repeat(exported):
    """The server of all sites repeats what a request asks for, unless it is no valid header."""
    asked = {"Access-Control-Request-Method": "POST"}
    with ServerProcess(exported, "--allowed_origins=*", "--allowed_hosts=*") as server:
        for odd in (b"\xff", "é".encode()):
            headers = {**asked, "Origin": SITE, "Access-Control-Request-Headers": odd}
            status, answer, _ = server.ask("OPTIONS", PREDICT, headers=headers)
            assert status == 204 and "Access-Control-Allow-Headers" not in answer
            status, answer, _ = server.ask("OPTIONS", PREDICT, headers={**asked, "Origin": odd})
            assert status == 403 and "Access-Control-Allow-Origin" not in answer
        host = {"Host": "any.example", "Origin": "http://other.example", **JSON}
        assert server.ask("POST", PREDICT, BODY, host)[0] == 200
        status, printed = server.stop()
    assert status == 0 and "Traceback" not in printed, printed


def test_an_allowed_host(guarded):
    """A proxy with TLS passes it on so; the page that it shows may ask."""
    host = {"Host": "reviews.example"}
    assert guarded.ask("GET", "/", headers=host)[0] == 200
    sent = {**host, **JSON, **WITH_KEY, "Origin": "https://reviews.example"}
    assert guarded.ask("POST", PREDICT, BODY, sent)[0] == 200


@pytest.mark.parametrize(
    "sent", [None, "Bearer", "Bearer third-key", "Bearer first-ke", f"Basic {KEYS[0]}", "Bearer é"]
)
def test_without_a_key(guarded, sent):
    headers = {} if sent is None else {"Authorization": sent.encode("utf-8")}
    for method, path in (("POST", PREDICT), ("GET", "/v1/models/tiny"), ("GET", "/metrics")):
        status, answer_headers, body = guarded.ask(method, path, BODY, headers)
        assert status == 401 and answer_headers["WWW-Authenticate"] == "Bearer"
        assert "`Authorization` must be" in json.loads(body)["error"]
        assert not any(key in body.decode() for key in KEYS)
    for path in ("/", "/healthz", "/readyz"):  # which say nothing of the model
        assert guarded.ask("GET", path, headers=headers)[0] == 200


@pytest.mark.parametrize("key", KEYS)
def test_with_a_key(guarded, key):
    for scheme in ("Bearer", "bearer"):
        headers = {"Authorization": f"{scheme} {key}"}
        assert guarded.json("POST", PREDICT, BODY, headers)[0] == 200


def test_keys_of_the_environment_and_of_a_file(tmp_path):
    environment = {"BERT_TF_API_KEY": " of-the-environment\n"}
    assert read_api_keys(None, dict(environment)) == ("of-the-environment",)
    assert read_api_keys(None, {}) == ()
    path = tmp_path / "keys"
    path.write_text("one\n\n two \n")
    assert read_api_keys(str(path), environment) == ("one", "two")
    assert environment == {}  # no program that the server starts sees it
    assert "one" not in repr(Access("localhost", api_keys=("one",)))


@pytest.mark.parametrize("content", ["", "\n", "two words\n", "é\n", b"\xff"])
def test_files_without_a_key(tmp_path, content):
    path = tmp_path / "keys"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match="--api_key_file must have"):
        read_api_keys(str(path), {})
    with pytest.raises(UserError, match="--api_key_file must be a file"):
        read_api_keys(str(tmp_path / "none"), {})
    with pytest.raises(UserError, match="BERT_TF_API_KEY must have"):
        read_api_keys(None, {"BERT_TF_API_KEY": ""})
