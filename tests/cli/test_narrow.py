"""Facts and tables on narrow terminals."""

from batchplan.cli import console
from batchplan.cli.console import facts, print_table

SENTENCE = "train on this one, because its batches are harder among true negatives than random ones"
ROWS = [
    ["", "planner", "allowed", "broken", "seconds"],
    ["1", "partition", "13.5%", "2.91%", "12.34"],
    ["", "random batches", "0.0%", "6.93%"],
]


def test_facts_are_folded_between_words():
    for room in (200, 60, 40):
        lines = facts([("verdict", SENTENCE), ("path", "a" * 50)], room).plain.split("\n")
        words = [line for line in lines if "a" * 50 not in line]
        assert all(len(line) <= room for line in words)
        assert " ".join(" ".join(words).split()).startswith(f"verdict {SENTENCE}")
        assert lines[0].startswith("verdict  train")
    assert len(facts([("verdict", SENTENCE)]).plain.split("\n")) == 1


def test_a_table_without_room_has_a_block_for_each_row(capsys, monkeypatch):
    monkeypatch.setattr(console, "_room", lambda _: 40)
    print_table(ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "1 partition",
        "  allowed  13.5%",
        "  broken   2.91%",
        "  seconds  12.34",
        "random batches",
        "  allowed  0.0%",
        "  broken   6.93%",
    ]
