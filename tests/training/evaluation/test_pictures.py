"""Pictures of an evaluation: which curves there are, and files."""

import functools

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.training.evaluation import draw_confusion, draw_curves, draw_history

pytest.importorskip("matplotlib", reason="needs matplotlib")
pytest.importorskip("sklearn", reason="needs scikit-learn")
NAMES = ["ham", "spam", "x"]


@pytest.mark.parametrize("kind", ["roc", "precision_recall", "calibration"])
def test_curves(kind, tmp_path):
    draw = functools.partial(draw_curves, kind)
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet([1.0, 1.0, 1.0], 40)
    gold = generator.integers(0, 2, 40)  # no example is of the last class
    drawn = [draw(gold, probabilities, NAMES), draw(np.eye(3)[gold], probabilities, NAMES)]
    drawn.append(draw(gold, probabilities[:, :2], NAMES[:2], tmp_path / "curve.png"))
    texts = [figure.axes[0].get_legend_handles_labels()[1] for figure in drawn]
    found = [[name for name in NAMES if any(name in text for text in shown)] for shown in texts]
    assert found == [["ham", "spam"], ["ham", "spam"], ["spam"]]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_confusion_and_history(tmp_path):
    figure = draw_confusion([0, 0, 1, 2], [0, 1, 1, 0], NAMES)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["1", "1", "0", "0", "1", "0", "1", "0", "0"]
    history = {"loss": [2.0, 1.0], "val_loss": [2.0, 3.0], "val_f1": [0.5, 0.7]}
    panels = draw_history(history, tmp_path / "curves.svg").axes
    assert [panel.get_title() for panel in panels] == ["loss", "f1"]
    assert [len(panel.lines) for panel in panels] == [2, 1]
    assert (tmp_path / "curves.svg").stat().st_size
    with pytest.raises(UserError, match="must be a .png, .svg or .pdf file"):
        draw_history(history, tmp_path / "curves.jpg")
