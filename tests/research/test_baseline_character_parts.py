"""Rules for the parts of characters: the nearest code points, and the parts of a sound."""

from research import baseline_character_parts
from research.baseline_character_parts import nearest, parts_by_sound


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
    monkeypatch.setattr(
        baseline_character_parts.character_parts, "describe_sounds", sounds.__getitem__
    )
    parts = {"沟": ["水", "勾"], "构": ["木", "勾"], "器": ["口", "口", "犬", "口", "口"]}
    assert parts_by_sound(sounds, parts) == {"gou": {"勾": 2}, "gou1": {"勾": 1}, "gou4": {"勾": 1}}
