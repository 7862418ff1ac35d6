"""The file: what is in it, and what it refuses."""

import json
import re

import pytest

from bert_tf import BertTextClassifier, inspection
from bert_tf.errors import UserError
from tests.inspection.models import make

HOSTILE = "</script><!--<script> & \u2028 \u2029 {{script}} good"


@pytest.fixture(scope="module")
def found(tiny_config, tiny_vocabulary):
    return inspection.inspect_text(make(BertTextClassifier, tiny_config, tiny_vocabulary), HOSTILE)


def test_the_data_are_only_data(found, tmp_path):
    page = inspection.to_html(found, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    data = re.search(r'id="data">(.*?)</script>', page.html, re.DOTALL).group(1)
    assert not re.search(r"[<>&\u2028\u2029]", data)
    assert json.loads(data)["inspections"][0]["texts"] == [HOSTILE]
    assert "default-src 'none'" in page.html and "connect-src 'none'" in page.html
    assert not re.search(r"https?://", page.html)
    assert 'sandbox="allow-scripts"' in page._repr_html_()


def test_mistakes(found):
    with pytest.raises(UserError, match="one Inspection or two. Received: none"):
        inspection.to_html([])
    with pytest.raises(UserError, match="at most max_megabytes=0.001. Received: 0 MB"):
        inspection.to_html(found, max_megabytes=0.001)
