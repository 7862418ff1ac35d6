"""The page in a real browser: keyboard, hostile text, light and dark, 512 pieces."""

import dataclasses
import json

import pytest

from bert_tf import BertMaskedLM, BertTextClassifier, inspection
from tests.inspection.browser import Browser
from tests.inspection.models import make

pytestmark = pytest.mark.browser
HOSTILE = (
    "good </script><img src=x onerror=\"document.title='hacked'\"> \u2028 \u202e film {{data}}"
)
LABELS = ["<b>bad</b>\u202e", "</script>'\"good\u200b"]
TABS = ("attention", "rollout", "attributions", "masked", "lens", "neighbours", "heads")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(tiny_config, tiny_vocabulary, tmp_path_factory):
    """A page of two models side by side, and their inspections."""
    kinds = (BertTextClassifier, BertMaskedLM)
    models = [make(kind, tiny_config, tiny_vocabulary) for kind in kinds]
    models[0].labels = LABELS
    found = [inspection.inspect_text(model, HOSTILE, model_name=HOSTILE) for model in models]
    path = tmp_path_factory.mktemp("page") / "page.html"
    inspection.to_html(found, path, title=HOSTILE)
    return path, found


def shown(browser, tab):
    panels = "[...document.querySelectorAll('[role=tabpanel]')]"
    browser.wait_for(f"{panels}.length && {panels}.every(p => p.dataset.shown === '{tab}')")


def test_every_tab_by_keyboard_and_hostile_text_is_text(browser, page):
    path, found = page
    browser.look()
    browser.open(f"file://{path}")
    shown(browser, "attention")
    browser.value("document.getElementById('tab-attention').focus()")
    for tab in TABS[1:]:
        browser.key("ArrowRight")
        shown(browser, tab)
        assert browser.value("document.activeElement.id") == f"tab-{tab}"
    assert browser.value("document.querySelectorAll('img, b').length") == 0
    shown_title = HOSTILE.replace("\u2028", "‹U+2028›").replace("\u202e", "‹U+202E›")
    for place in ("document.title", "get('title').textContent"):
        assert browser.value(place).split() == shown_title.split()
    page_text = browser.value("document.body.innerText")
    assert "<b>bad</b>‹U+202E›" in page_text and "</script>'\"good‹U+200B›" in page_text
    assert f"{shown_title}: text classification" in page_text
    assert not set("\u2028\u202e\u200b") & set(page_text)
    texts = {
        "👩🏽\u200d💻 ❤️\u200d🔥": "👩🏽\u200d💻 ❤️\u200d🔥",
        "a\u200d💻\u200d": "a‹U+200D›💻‹U+200D›",
        "a\u034fb\u180b\ufe00": "a‹U+034F›b‹U+180B›‹U+FE00›",
        "a\ufe0f 1\ufe0f 1\ufe0f\u20e3 \U000e0100": "a‹U+FE0F› 1‹U+FE0F› 1\ufe0f\u20e3 ‹U+E0100›",
        "\u115f\u1160\u3164\uffa0": "‹U+115F›‹U+1160›‹U+3164›‹U+FFA0›",
    }
    for text, expected in texts.items():
        assert browser.value(f"visible({json.dumps(text)})") == expected
    browser.key("Home")
    shown(browser, "attention")
    pieces = browser.value("[...document.querySelector('.pieces').children].map(b => b.title)")
    assert len(pieces) == len(found[0].row)
    assert "characters 0 to 4, word 0" in pieces[1]
    browser.value("document.querySelector('.pieces button').focus()")
    browser.key("ArrowRight")
    browser.key("Enter")
    assert browser.value("panes[0].piece") == 1
    assert browser.problems == []
    assert [address for address in browser.requests if not address.startswith("data:")] == [
        f"file://{path}"
    ]


def test_a_head_is_switched_off(browser, page):
    path, found = page
    browser.open(f"file://{path}")
    shown(browser, "attention")
    browser.value("document.getElementById('tab-heads').click()")
    shown(browser, "heads")
    browser.value("document.querySelector('button.head').focus()")
    browser.key("ArrowRight")
    browser.key("Enter")
    without = browser.value("panes[0].without.map(answer => answer.score)")
    assert without == pytest.approx(found[0].head_scores[0, 1].tolist(), rel=1e-3)
    browser.key("Enter")
    assert browser.value("panes[0].off.size") == 0


def test_bars_of_scores_below_and_above_zero_begin_in_the_middle(
    browser, tiny_config, tiny_vocabulary, tmp_path
):
    options = {"num_classes": 2, "problem_type": "regression"}
    model = make(BertTextClassifier, tiny_config, tiny_vocabulary, **options)
    model.classifier.bias.assign([30.0, -30.0])
    path = tmp_path / "page.html"
    inspection.to_html(inspection.inspect_text(model, "good film"), path)
    browser.open(f"file://{path}")
    shown(browser, "attention")
    browser.value("change({tab: 'heads'}).then(() => panes[0].toggle(0, 1))")
    tracks = "[...document.querySelectorAll('[role=tabpanel] .track')]"
    assert browser.value(f"{tracks}.map(track => track.className)") == ["track centred"] * 2


def test_the_number_of_a_piece_from_right_to_left_is_right_of_it(browser, page):
    browser.open(f"file://{page[0]}")
    shown(browser, "attention")
    letter, bracket = browser.value(
        """(() => {
          const list = bars([{label: "שלום", place: 12, share: 1, text: ""}]);
          document.body.append(list);
          const text = list.querySelector(".name").firstChild, range = new Range();
          return ["ש", "("].map(character => {
            range.setStart(text, text.data.indexOf(character));
            range.setEnd(text, text.data.indexOf(character) + 1);
            return range.getBoundingClientRect().left;
          });
        })()"""
    )
    assert letter < bracket


def test_a_browser_without_idle_callbacks_unpacks_all_layers(browser, page):
    """As Safari."""
    source = "delete globalThis.requestIdleCallback"
    script = browser.command("Page.addScriptToEvaluateOnNewDocument", source=source)
    try:
        browser.open(f"file://{page[0]}")
        shown(browser, "attention")
        assert browser.value("panes[0].data.unpackAll().then(() => panes[0].data.layerBytes.size)")
        assert browser.problems == []
    finally:
        browser.command("Page.removeScriptToEvaluateOnNewDocument", **script)


def test_weights_arrive(browser, page):
    path, found = page
    browser.open(f"file://{path}")
    shown(browser, "attention")
    weights = json.loads(
        browser.value("panes[0].data.weights(1, 2).then(w => JSON.stringify([...w]))")
    )
    assert weights == pytest.approx(found[0].attentions[1, 2].reshape(-1).tolist(), abs=0.005)


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(browser, page, dark):
    browser.look(width=400, dark=dark)
    browser.open(f"file://{page[0]}")
    shown(browser, "attention")
    colours = "getComputedStyle(document.body).backgroundColor"
    assert browser.value(colours) == ("rgb(22, 24, 28)" if dark else "rgb(255, 255, 255)")
    assert browser.value("document.documentElement.scrollWidth") <= 400


@pytest.fixture(scope="module")
def long_page(tiny_config, tiny_vocabulary, tmp_path_factory):
    """512 pieces, 12 layers of 12 heads."""
    sizes = {"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 48}
    config = dataclasses.replace(tiny_config, **sizes, max_position_embeddings=512)
    found = inspection.inspect_text(make(BertMaskedLM, config, tiny_vocabulary), "film good " * 400)
    path = tmp_path_factory.mktemp("long") / "page.html"
    inspection.to_html(found, path)
    return path, found


def test_512_pieces(browser, long_page):
    path, found = long_page
    browser.look()
    browser.open(f"file://{path}")
    shown(browser, "attention")
    assert browser.value("panes[0].data.length") == 512
    row = browser.value(
        "panes[0].data.weights(11, 7).then(w => [...w.subarray(300 * 512, 301 * 512)])"
    )
    assert row == pytest.approx(found.attentions[11, 7, 300].tolist(), abs=0.005)
    # Lines of all pieces: the weakest are left out, and the page says so.
    browser.value("change({layer: 11, least: 0})")
    shown(browser, "attention")
    browser.wait_for("document.body.textContent.includes('Only the strongest lines are drawn')")
    for settings in ("{head: -2}", "{view: 'matrix', head: 3}"):
        browser.value(f"change({settings})")
        browser.value("panes[0].choose(300)")
    assert "From good (300)" in browser.value(
        "document.querySelector('[role=tabpanel]').textContent"
    )
    browser.value("change({view: 'overview'})")
    browser.wait_for("document.querySelector('.grid').dataset.ready === 'yes'")
    assert browser.value("document.querySelectorAll('.grid canvas').length") == 144
    for tab in TABS[1:]:
        browser.value(f"change({{tab: '{tab}'}})")
        shown(browser, tab)
        browser.value("panes[0].choose(511); panes[0].choose(300)")
    assert browser.problems == []
