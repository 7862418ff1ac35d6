"""The page at / in a real browser: text in, bars or highlighted spans out."""

import shutil

import pytest
import tensorflow as tf

from tests.server.process import PATIENCE, ServerProcess

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if not driver or not chromium:
        pytest.skip("needs a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield browser
    browser.quit()


def _find(browser, selector):
    """The elements, as soon as there are any."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, PATIENCE).until(
        lambda driver: driver.find_elements("css selector", selector)
    )


def _ask(browser, **texts):
    for name, text in texts.items():
        area = _find(browser, f"#input-{name}")[0]
        area.clear()
        area.send_keys(text)
    browser.execute_script("document.getElementById('answer').replaceChildren()")
    _find(browser, "#form button")[0].click()


def test_a_classifier_shows_bars(browser, server):
    browser.get(f"http://127.0.0.1:{server.port}/")
    _ask(browser, text="the good film.")
    _find(browser, "#answer .bar")
    shares = [element.text for element in _find(browser, ".bar .share")]
    fills = _find(browser, ".bar > div > div")
    widths = [element.value_of_css_property("width") for element in fills]
    _, answer = server.predict({"instances": ["the good film."]})
    (row,) = answer["predictions"]
    expected = sorted(row["probabilities"], reverse=True)
    assert shares == [f"{100 * p:.1f} %" for p in expected]
    assert float(widths[0][:-2]) > float(widths[1][:-2])
    assert _find(browser, ".bar.best .label")[0].text == row["label"]
    assert "version 1" in _find(browser, "h1")[0].text


def test_an_error_is_shown(browser, server):
    browser.get(f"http://127.0.0.1:{server.port}/")
    _ask(browser, text="a" * 2001)
    from selenium.webdriver.support.ui import WebDriverWait

    message = WebDriverWait(browser, PATIENCE).until(
        lambda driver: driver.find_element("id", "error").text
    )
    assert "at most 2000 characters" in message
    # Markup in a text stays text.
    _ask(browser, text="<img src=x onerror=document.title='hacked'>")
    _find(browser, "#answer .bar")
    assert browser.title == "bert_tf"


def test_the_page_asks_for_the_key(browser, exported, tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    (tmp_path / "keys").write_text("right-key\n")
    with ServerProcess(exported, f"--api_key_file={tmp_path / 'keys'}") as server:
        browser.get(f"http://127.0.0.1:{server.port}/")
        wait = WebDriverWait(browser, PATIENCE)
        key, form = (browser.find_element("id", name) for name in ("key", "form"))
        wait.until(lambda _: key.is_displayed())
        assert not form.is_displayed()  # nothing to ask before the model is known
        assert key.get_attribute("type") == "password"
        for sent in ("another-key", "kéy", "ключ"):
            browser.execute_script("document.getElementById('error').textContent = ''")
            key.clear()
            key.send_keys(sent)
            _find(browser, "#key-form button")[0].click()
            wait.until(lambda _: browser.find_element("id", "error").text)
            assert key.is_displayed() and not form.is_displayed()
        key.clear()
        key.send_keys("right-key\n")  # Enter
        wait.until(lambda _: form.is_displayed())
        assert not key.is_displayed() and not browser.find_element("id", "error").text
        _ask(browser, text="the good film.")
        assert len(_find(browser, "#answer .bar")) == 2
        assert "right-key" not in browser.current_url


class Spans(tf.Module):
    """Models that find entities and answers by rule, with the outputs that `export` gives."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def tag(self, text):
        rows = tf.size(text)
        return {
            "entity_count": tf.fill([rows], 1),
            "entity_start": tf.tile([[2, 0]], [rows, 1]),
            "entity_end": tf.tile([[5, 0]], [rows, 1]),
            "entity_label": tf.tile([["PER", ""]], [rows, 1]),
        }

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="question"),
            tf.TensorSpec([None], tf.string, name="context"),
        ]
    )
    def answer(self, question, context):
        rows = tf.size(question)
        return {
            "answer": tf.strings.substr(context, 3, 4, unit="UTF8_CHAR"),
            "start": tf.fill([rows], 3),
            "end": tf.fill([rows], 7),
            "score": tf.fill([rows], 0.75),
        }


@pytest.mark.parametrize(
    ("function", "texts", "marked"),
    [
        ("tag", {"text": "\U0001d49c Ada wrote."}, "AdaPER"),
        ("answer", {"question": "Who?", "context": "né Élis."}, "Élis"),
    ],
)
def test_spans_are_highlighted(browser, tmp_path, function, texts, marked):
    module = Spans()
    tf.saved_model.save(module, str(tmp_path / "1"), {"serving_default": getattr(module, function)})
    with ServerProcess(tmp_path) as server:
        browser.get(f"http://127.0.0.1:{server.port}/")
        # Characters beyond the first plane cannot be typed through the driver.
        for name, text in texts.items():
            area = _find(browser, f"#input-{name}")[0]
            browser.execute_script("arguments[0].value = arguments[1]", area, text)
        _find(browser, "#form button")[0].click()
        assert [element.text for element in _find(browser, "#answer mark")] == [marked]
        if function == "answer":
            assert _find(browser, "#answer .best")[0].text == "Élis (75.0 %)"
