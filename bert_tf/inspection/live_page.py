"""The live inspection page: a text is typed, one model thread inspects it, the page shows it.

GET  /         the page
POST /inspect  {"model": 0, "text": …, "pair": …, "target": …, "piece": …}
POST /heads    the same with "heads": [[layer, head], …], the heads that are switched off
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_tf.base.json_schema import check, integer, list_of, object_of, optional, text
from bert_tf.errors import UserError
from bert_tf.inspection.attributions import without_heads
from bert_tf.inspection.inspection import MAX_TOKENS, inspect_text, inspected_rows
from bert_tf.inspection.page import answers_data, page_data, page_of
from bert_tf.inspection.targets import Target
from bert_tf.server import PageServer

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

    Args:
        load_models: Returns one model or two, each with its name. It is called once the port is
            bound, so that a wrong address is found before a model is read.
        options: The options.

    Raises:
        UserError: If aiohttp is not installed, or the address cannot be used.
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
