"""Names of classes in files: ids that are not 0 to n - 1, and keys that contradict each other."""

import json
import shutil

import pytest

import bert_tf
from bert_tf import BertBackbone
from bert_tf.errors import ConfigError, UserError

NAMES = ["no", "maybe", "yes"]
KINDS = [bert_tf.BertTextClassifier, bert_tf.BertTokenClassifier]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=["huggingface", "tf1"])
def written(request, kind, tiny_config, tmp_path_factory):
    """The directory of a model, and the name of the file with its labels."""
    directory = tmp_path_factory.mktemp("labels")
    model = kind(BertBackbone(tiny_config), labels=NAMES)
    model.save_pretrained(directory, format=request.param)
    return directory, "config.json" if request.param == "huggingface" else "bert_config.json"


@pytest.fixture
def saved(written, tmp_path):
    """Returns a function that writes labels into the files, as another library does."""
    directory, name = written
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    file = tmp_path / name
    values = json.loads(file.read_text())
    for path in tmp_path.glob("*.json"):
        known = json.loads(path.read_text())
        known.pop("bert_tf", None)
        path.write_text(json.dumps(known))

    def write(id2label, label2id=None):
        changed = {**values, "id2label": id2label, "label2id": label2id}
        changed.pop("bert_tf", None)
        file.write_text(json.dumps({k: v for k, v in changed.items() if v is not None}))
        return tmp_path

    return write


@pytest.mark.parametrize("ids", [(-1, 0, 1), (1, 2, 3), (0, 2, 5)])
def test_ids_that_are_not_those_of_the_outputs(kind, saved, ids):
    path = saved({str(number): name for number, name in zip(ids, NAMES)})
    expected = rf"`id2label` must have the ids 0 to n - 1.*{path.name}.*{ids[0]}, {ids[1]}"
    with pytest.raises(ConfigError, match=expected):
        kind.from_pretrained(path)
    assert list(kind.from_pretrained(path, labels=NAMES[::-1]).labels) == NAMES[::-1]
    BertBackbone.from_pretrained(path)  # it has no labels


def test_label2id(kind, saved):
    names = {str(number): name for number, name in enumerate(NAMES)}
    for ids in ({"no": 1, "maybe": 0, "yes": 2}, {"no": 0, "maybe": 1, "yes": 2, "other": 3}):
        with pytest.raises(ConfigError, match="`label2id` must be the inverse of `id2label`"):
            kind.from_pretrained(saved(names, ids))
    defaults = {f"LABEL_{number}": number for number in range(3)}  # transformers', if not set
    for ids in (defaults, {"no": "0", "maybe": "1", "yes": "2"}, {"no": 0}):
        assert list(kind.from_pretrained(saved(names, ids)).labels) == NAMES


def test_a_name_of_two_classes(kind, saved, tiny_config):
    with pytest.raises(ConfigError, match=r"Labels must be different.*several times \['no'\]"):
        kind.from_pretrained(saved({"0": "no", "1": "yes", "2": "no"}))
    for names in (["no", "yes", "no"], ["1", 1, 2]):
        with pytest.raises(UserError, match="`labels` must be different names.*several times"):
            kind(BertBackbone(tiny_config), labels=names)


def test_own_labels_that_are_not_those_of_the_file(kind, tiny_config, tmp_path):
    """Another program, which does not know the key `bert_tf`, has changed `id2label`."""
    kind(BertBackbone(tiny_config), labels=NAMES).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    changed = {"id2label": {"0": "bad", "1": "fair", "2": "good"}, "label2id": None}
    file.write_text(json.dumps({**values, **changed}))
    with pytest.raises(ConfigError, match="must have the same names as `labels` in `bert_tf`"):
        kind.from_pretrained(tmp_path)
    values["bert_tf"]["options"]["labels"] = ["no", "no", "yes"]
    file.write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="Labels must be different"):
        kind.from_pretrained(tmp_path)
