"""Names and tables of options: what they mean, and what is refused before anything runs."""

import re
from pathlib import Path

import pytest

from batchplan import InputError
from batchplan.comparison import Setting, make_setting, read_settings
from batchplan.comparison.settings import USUAL
from batchplan.planners import PLANNERS

SHARED = {"batch_size": 8, "similarity": "dot", "temperature": 0.1}


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read settings from the text of a file."""
    monkeypatch.chdir(tmp_path)

    def read(text=None, names=None):
        if text is not None:
            Path("s.toml").write_text(text)
        return read_settings(names, None if text is None else "s.toml", SHARED)

    return read


def test_which_settings_are_chosen(read):
    tables = "[knn]\nneighbors = 9\n['my knn']\nplanner = 'knn'\n"
    assert [one.name for one in read()] == list(USUAL)
    assert [one.name for one in read(tables)] == ["knn", "my knn"]
    named = read(tables, ["gcbs", "my knn", "knn", "gcbs"])
    assert [(one.name, one.planner) for one in named] == [
        ("gcbs", "gcbs"), ("my knn", "knn"), ("knn", "knn")
    ]  # fmt: skip
    assert [one.options.neighbors for one in named[1:]] == [256, 9]


def test_shared_options_give_way_to_those_of_a_table(read):
    own, shared = read("[partition]\nbatch-size = 4\n[gcbs]")
    assert own.options == PLANNERS["partition"].options(**SHARED | {"batch_size": 4})
    assert shared.options == PLANNERS["gcbs"].options(**SHARED)
    (without,) = read(names=["hardneg"])  # it has no temperature
    assert without.options == PLANNERS["hardneg"].options(
        batch_size=8, similarity="dot", as_batches=True
    )


def test_options_are_called_as_fields(read):
    (one,) = read("[partition]\nbatch-size = 4\nrelative-margin = 1\nguard_penalty = 0.5")
    assert (one.options.batch_size, one.options.relative_margin) == (4, 1)
    assert one.options.guard_penalty == 0.5


@pytest.mark.parametrize("name", ["hardneg", "scns"])
def test_tables_of_negatives_become_batches(read, name):
    assert read(names=[name])[0].options.as_batches
    with pytest.raises(InputError, match=r"s\.toml: .*as_batches: got False, expected True"):
        read(f"[{name}]\nas_batches = false")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"^s\.toml: has no table, expected one per setting"),
        ("batch_size = 3", r"^s\.toml: 'batch_size': expected a table"),
        ("[[knn]]", r"^s\.toml: 'knn': expected a table"),
        ("[knn", r"^s\.toml: is not a TOML file: Expected"),
        ("['a/b']\nplanner='knn'", r"'a/b': expected a table, .* with a name of"),
        ("['']\nplanner='knn'", r"'': expected a table, .* with a name of"),
        ("['a,b']\nplanner='knn'", r"'a,b': expected a table, .* with a name of"),
        ("[mine]", r"^s\.toml: \[mine\]: planner: got 'mine', expected one of partition, gcbs, "),
        ("[a]\nplanner = 'b'", r"^s\.toml: \[a\]: planner: got 'b', expected one of"),
        ("[a]\nplanner = 3", r"^s\.toml: \[a\]: planner: got 3, expected one of"),
        ("[knn]\nneighbours = 3", r"\[knn\]: knn: no option 'neighbours', expected .*neighbors"),
        ("[knn]\nquantile = 0.9", r"\[knn\]: knn: no option 'quantile', expected sim"),
        ("[knn]\nneighbors = '3'", r"^s\.toml: \[knn\]: neighbors: got '3', expected an integer"),
        ("[knn]\nneighbors = 3.0", r"\[knn\]: neighbors: got 3\.0, expected an integer"),
        ("[knn]\nneighbors = true", r"\[knn\]: neighbors: got True, expected an integer"),
        ("[gcbs]\nreverse = 1", r"\[gcbs\]: reverse: got 1, expected True or False"),
        ("[knn]\ntail = 'cut'", r"\[knn\]: tail: got 'cut', expected keep or drop or pad"),
        ("[knn]\nbatch_size = 1", r"\[knn\]: batch size: got 1, expected a number of at least 2"),
        ("[gcbs]\ntemperature = nan", r"\[gcbs\]: temperature: got nan, expected a finite"),
        ("[knn]\ntail = 1979-05-27", r"\[knn\]: tail: got datetime.date.*, expected keep"),
    ],
)
def test_what_is_refused(read, text, said):
    with pytest.raises(InputError, match=said) as refused:
        read(text, ["knn"])  # also where the table is not chosen
    assert "\n" not in str(refused.value)


def test_files_that_cannot_be_read(read, tmp_path):
    for path, said in (("none.toml", "no such file"), (str(tmp_path), "is not a regular file")):
        with pytest.raises(InputError, match=f"^{re.escape(path)}: {said}"):
            read_settings(None, path, SHARED)
    Path("latin.toml").write_bytes(b"[knn]\ntail = '\xe9'")
    with pytest.raises(InputError, match=r"^latin\.toml: is not a TOML file"):
        read_settings(None, "latin.toml", SHARED)


def test_names_of_nothing(read):
    for name in ("nothing", ""):
        with pytest.raises(InputError, match=f"^planners: got '{name}', expected some of mine, "):
            read("[mine]\nplanner = 'knn'", [name])


def test_settings_of_mappings():
    """As Python makes them."""
    one = make_setting("hard", {"planner": "knn", "batch-size": 4, "neighbors": 9}, SHARED)
    assert one == Setting(
        "hard", "knn", PLANNERS["knn"].options(**SHARED | {"batch_size": 4, "neighbors": 9})
    )
    with pytest.raises(InputError, match=r"^\[knn\]: knn: no option 'neighbours', expected "):
        make_setting("knn", {"neighbours": 9})
    with pytest.raises(InputError, match=r"^'\.\./knn': expected a table, .* of at most 100"):
        make_setting("../knn", {"planner": "knn"})
    with pytest.raises(InputError, match=r"^\[knn\]: neighbors: got 0, expected "):
        make_setting("knn", {"neighbors": 0})
