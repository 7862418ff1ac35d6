"""The page that shows inspections: one HTML file that needs nothing else, or its live form.

The page loads nothing: its style, script and data are in it. A Content-Security-Policy allows its
own script, by its hash, and no other; what the data hold is only ever shown as text.

An `Inspection` becomes values of JSON. Attention takes most of the space, so its weights become
bytes: weight w is the byte round(255 √w), which keeps small weights (the step is 0.000015 at 0 and
0.008 at 1). The bytes of a layer are compressed together (zlib) and sent in base64; the page
unpacks a layer when it is shown.

On the live page, a text is typed, one model thread inspects it, and the page shows it.

GET  /         the page
POST /inspect  {"model": 0, "text": …, "pair": …, "target": …, "piece": …}
POST /heads    the same with "heads": [[layer, head], …], the heads that are switched off
"""

import base64
import dataclasses
import html
import importlib.resources
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base.files import atomic_path
from bert_tf.base.json_schema import check, integer, list_of, object_of, optional, text
from bert_tf.errors import UserError
from bert_tf.inspection.attributions import without_heads
from bert_tf.inspection.candidates import Neighbours, PieceCandidates
from bert_tf.inspection.inspection import MAX_TOKENS, Inspection, inspect_text, inspected_rows
from bert_tf.inspection.targets import Target, TargetAnswer
from bert_tf.server import PageServer, page_policy

_FAST = 1  # zlib's level: 3 times as fast as the default, for files that are a few % larger


def page_data(inspection: Inspection) -> dict[str, Any]:
    """Returns what the page shows, as values of JSON."""
    row, readable = inspection.row, inspection.row.readable
    layers, heads = inspection.attentions.shape[:2]
    return {
        "model": inspection.model_name,
        "task": inspection.task,
        "texts": list(row.texts),
        "pieces": row.pieces,
        "ids": row.ids.tolist(),
        "textOf": row.text_numbers.tolist(),
        "starts": row.starts.tolist(),
        "ends": row.ends.tolist(),
        "words": row.words.tolist(),
        "numCut": row.num_cut,
        "layers": layers,
        "heads": heads,
        "kept": inspection.kept_heads,
        "attentions": [packed_weights(layer) for layer in inspection.attentions],
        "rollout": [packed_weights(layer) for layer in inspection.rollout],
        "target": None if inspection.target is None else _target(inspection.target),
        "attributions": {
            name: {
                "pieces": rounded(found.pieces),
                "words": rounded(found.words),
                "gap": rounded(found.gap),
                "baseline": rounded(found.baseline),
            }
            for name, found in inspection.attributions.items()
        },
        "masked": _candidates(inspection.masked_words, readable),
        "lens": _candidates(inspection.lens, readable),
        "nearTokens": _neighbours(inspection.near_tokens, None),
        "nearPieces": _neighbours(inspection.near_pieces, readable),
        "headScores": rounded(inspection.head_scores),
        "headProbabilities": rounded(inspection.head_probabilities),
        "leftOut": inspection.left_out,
    }


def answers_data(answers: list[TargetAnswer]) -> list[dict[str, Any]]:
    """Returns answers as values of JSON."""
    return [answer._asdict() for answer in answers]


def packed_weights(weights: np.ndarray) -> str:
    """Returns weights from 0 to 1, of any shape, as compressed bytes in base64.

    Example:
        >>> import base64, zlib
        >>> packed = base64.b64decode(packed_weights(np.array([0.0, 0.25, 1.0])))
        >>> list(zlib.decompress(packed))
        [0, 128, 255]
    """
    values = np.rint(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
    return base64.b64encode(zlib.compress(values.tobytes(), _FAST)).decode()


def rounded(values: np.ndarray | None) -> Any:
    """Returns numbers with 5 digits as nested lists; None for what is no number.

    Example:
        >>> rounded(np.array([[1.234567, np.nan]]))
        [[1.2346, None]]
    """
    if values is None:
        return None
    return _each(np.asarray(values, np.float64).tolist())


def _each(values):
    if isinstance(values, list):
        return [_each(value) for value in values]
    return float(f"{values:.5g}") if math.isfinite(values) else None


def _target(target: Target):
    return {
        "name": target.name,
        "number": target.number,
        "piece": target.piece,
        "isSimilarity": target.is_similarity,
        "answers": answers_data(target.answers),
        "pieceLabels": target.piece_labels,
    }


def _candidates(found: PieceCandidates | None, readable):
    if found is None:
        return None
    table = _table(found.ids, found.probabilities, readable)
    return {**table, "own": rounded(found.own.reshape(-1))}


def _neighbours(found: Neighbours | None, readable):
    return None if found is None else _table(found.numbers, found.cosines, readable)


def _table(numbers, values, readable):
    """Returns flat lists of k entries for each place, and the text of each number that occurs."""
    flat = numbers.reshape(-1).tolist()
    table = {"k": numbers.shape[-1], "numbers": flat, "values": rounded(values.reshape(-1))}
    if readable is not None:
        table["labels"] = {number: readable[number] for number in set(flat)}
    return table


MAX_MEGABYTES = 64.0
_SCRIPTS = ("data.js", "drawing.js", "panels.js", "main.js")
# What could end the element that holds the data, or a line of JavaScript. The rest is ASCII.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
_HEIGHT = 900  # pixels of the frame in a notebook


@dataclasses.dataclass(frozen=True)
class InspectionPage:
    """The page. A notebook shows it in a frame that can reach neither the notebook nor a network.

    Attributes:
        html: The page.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> page = bert_tf.inspection.to_html(bert_tf.inspection.inspect_text(model, "a good film"))
        >>> page.html.startswith("<!DOCTYPE html>")
        True
    """

    html: str

    def __str__(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"InspectionPage({len(self.html):,} characters)"

    def _repr_html_(self) -> str:
        source = html.escape(self.html)
        return (
            f'<iframe title="Inspection" sandbox="allow-scripts" width="100%" height="{_HEIGHT}" '
            f'style="border:0" srcdoc="{source}"></iframe>'
        )


def to_html(
    inspections: Inspection | Sequence[Inspection],
    path: str | os.PathLike | None = None,
    *,
    title: str = "bert_tf: inspection",
    max_megabytes: float = MAX_MEGABYTES,
) -> InspectionPage:
    """Makes one HTML file of an inspection, or of two side by side.

    Args:
        inspections: What `inspect_text` returned, or a list of at most two: two texts or two
            models.
        path: The file to write, atomically; None writes none.
        title: The title of the page.
        max_megabytes: The maximum size of the page in megabytes. A text of 512 tokens and a model
            of 12 layers with 12 heads have 38 million weights, which are one byte each before they
            are compressed.

    Returns:
        The page: its `html`, which a notebook shows if it is the last value of a cell.

    Raises:
        UserError: If there are no inspections or more than two, or the page would be too large.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> both = [bert_tf.inspection.inspect_text(model, text) for text in ("good", "bad")]
        >>> bert_tf.inspection.to_html(both, "inspection.html")
        InspectionPage(...)
    """
    found = [inspections] if isinstance(inspections, Inspection) else list(inspections)
    if not 1 <= len(found) <= 2 or not all(isinstance(one, Inspection) for one in found):
        kinds = ", ".join(type(one).__name__ for one in found) or "none"
        raise UserError(f"`inspections` must be one Inspection or two. Received: {kinds}")
    page = page_of({"title": title, "live": None, "inspections": [page_data(one) for one in found]})
    size = len(page) / 1e6  # nearly all of it is ASCII
    if size > max_megabytes:
        raise UserError(
            f"The page must have at most max_megabytes={max_megabytes:g}. Received: {size:.0f} MB, "
            "mostly attention, which grows with the square of the text. Inspect a shorter text, or "
            "pass a larger `max_megabytes`."
        )
    if path is not None:
        with atomic_path(path) as staged, open(staged, "w", encoding="utf-8") as file:
            file.write(page)
    return InspectionPage(page)


def page_of(data: dict[str, Any]) -> str:
    """Returns the page for its data: `title`, `inspections` and `live`.

    With `live`, the page has a form and may ask the server that it came from.
    """
    style, script = _text("page.css"), "".join(map(_text, _SCRIPTS))
    connect = "'self'" if data["live"] else "'none'"
    policy = page_policy(style, script, connect)
    values = {"policy": policy, "style": style, "data": embedded(data), "script": script}
    page = _text("page.html")
    parts = page.split("{{")
    filled = [parts[0]]
    for part in parts[1:]:  # in one pass, so that braces in a value stay
        name, _, rest = part.partition("}}")
        filled += [values[name], rest]
    return "".join(filled)


def embedded(data: Any) -> str:
    r"""Returns JSON that is safe in an HTML element: ASCII without `<`, `>` and `&`.

    Example:
        >>> embedded("</script>\u2028")
        '"\\u003c/script\\u003e\\u2028"'
    """
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def _text(name):
    return (importlib.resources.files(__package__) / "page_files" / name).read_text(
        encoding="utf-8"
    )


MAX_TEXT_LENGTH = 20_000  # characters; a model reads 512 tokens
_HEAD = list_of(integer(), least=2, most=2)  # a layer and its head
_REQUEST = object_of(
    {
        "model": integer(),
        "text": text(),
        "pair": optional(text()),
        "target": optional(integer()),
        "piece": optional(integer()),
        "heads": optional(list_of(_HEAD, most=10_000)),
    },
    only=True,
)
Models = Sequence[tuple[str, Any]]


@dataclasses.dataclass(frozen=True)
class InspectionOptions:
    """The options of the live page."""

    host: str = "127.0.0.1"
    port: int = 8502  # 0 chooses a free port
    # What the form shows at first, by its names: "text", "pair", "text_b", "pair_b".
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    max_text_length: int = MAX_TEXT_LENGTH
    max_tokens: int = MAX_TOKENS  # of one part; see `inspect_text`


def serve_inspections(load_models: Callable[[], Models], options: InspectionOptions) -> None:
    """Prints the address when the models are loaded, and serves the page until a signal ends it.

    `load_models` returns one model or two, each with its name. It is called once the port is bound,
    so that a wrong address is found before a model is read. Raises `UserError` if aiohttp is not
    installed, or the address cannot be used.
    """
    with PageServer(options.host, options.port, 16 * options.max_text_length) as server:
        models = load_models()
        names = [name for name, _ in models]
        live = {**options.texts, "models": names, "maxLength": options.max_text_length}
        names = " and ".join(names)
        page = page_of({"title": f"Inspection: {names}", "live": live, "inspections": []})
        answers = _Answers(models, options)
        actions = {"/inspect": answers.inspect, "/heads": answers.switch_off}
        server.run(f"Inspecting {names}", page, actions)


class _Answers:
    def __init__(self, models, options):
        self._models, self._options = models, options

    def inspect(self, request):
        name, model, asked = self._checked(request)
        chosen = {"target": asked["target"], "piece": asked["piece"]}

        def compute():
            limit = self._options.max_tokens
            texts = asked["text"], asked["pair"]
            found = inspect_text(model, *texts, model_name=name, max_tokens=limit, **chosen)
            return {"inspection": page_data(found)}

        return compute

    def switch_off(self, request):
        _, model, asked = self._checked(request)

        def compute():
            row, other = inspected_rows(model, None, asked["text"], asked["pair"])
            target = Target(model, row, other, asked["target"], asked["piece"])
            answers = without_heads(model, row, target, asked["heads"] or [])
            return {"answers": answers_data(answers)}

        return compute

    def _checked(self, request):
        """Returns the name of the model, the model and the request, with None for what it lacks."""
        check(request, _REQUEST, None, UserError)
        number = request["model"]
        if number >= len(self._models):
            raise UserError(f"`model` must be below {len(self._models)}. Received: {number}")
        for name in ("text", "pair"):
            length, most = len(request.get(name) or ""), self._options.max_text_length
            if length > most:
                raise UserError(f"`{name}` must have at most {most} characters. Received: {length}")
        absent = dict.fromkeys(("pair", "target", "piece", "heads"))
        return *self._models[number], {**absent, **request}
