"""`NoKnownAnswers` against its definition, and in a trainer of sentence-transformers."""

import itertools

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Generator

from batchplan.errors import InputError
from batchplan.training.sentence_transformers import NoKnownAnswers

from .texts import load_model, save_model


def texts(seed, rows=200, columns=2):
    """A Dataset of texts that repeat in and across columns."""
    rng = np.random.default_rng(seed)
    drawn = np.unique(rng.integers(0, [[120, 130]], (2 * rows, 2)), axis=0)
    pairs = rng.permutation(drawn)[:rows]
    names = {"anchor": [f"text {a}" for a in pairs[:, 0]]}
    names["positive"] = [f"text {p + 115}" for p in pairs[:, 1]]
    for number in range(columns - 2):
        names[f"negative_{number}"] = [f"text {p + 115}" for p in rng.integers(0, 400, rows)]
    return Dataset.from_dict({**names, "label": [1] * rows})


def meets(data):
    """The pairs of rows that must not share a batch."""
    anchors, positives, *negatives = (list(data[name]) for name in data.column_names[:-1])
    known = {*zip(anchors, positives, strict=True), *((own, own) for own in anchors)}
    rows = range(len(data))
    return {
        frozenset((i, j))
        for i, j in itertools.permutations(rows, 2)
        if any((anchors[i], own[j]) in known for own in (positives, *negatives))
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("columns", "drop_last"), [(2, False), (2, True), (4, False)])
def test_definition(seed, columns, drop_last):
    data, apart = texts(seed, columns=columns), None
    sampler = NoKnownAnswers(data, 16, drop_last, ["label"], Generator(), seed)
    again = NoKnownAnswers(data, 16, drop_last, ["label"], Generator(), seed)
    apart, seen = meets(data), []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        again.set_epoch(epoch)
        batches = list(sampler)
        assert batches == list(again)  # as in another process
        assert len(batches) == len(sampler) == (12 if drop_last else 13)
        rows = list(itertools.chain(*batches))
        assert len(rows) == len(set(rows)) == (192 if drop_last else 200)
        assert not any(
            frozenset(pair) in apart for own in batches for pair in itertools.combinations(own, 2)
        )
        seen.append(batches)
    assert seen[0] != seen[1]


def test_a_text_of_more_rows_than_batches_is_spread_evenly():
    data = Dataset.from_dict(
        {
            "anchor": [f"q{i}" for i in range(40)],
            "positive": ["same"] * 10 + [f"d{i}" for i in range(30)],
        }
    )
    batches = list(NoKnownAnswers(data, 10, False, generator=Generator()))
    assert sorted(sum(row < 10 for row in own) for own in batches) == [2, 2, 3, 3]


def test_lists_are_no_texts():
    data = Dataset.from_dict({"anchor": ["a", "b"], "positive": [["c"], ["d"]]})
    with pytest.raises(InputError, match="column 'positive': has lists, expected texts"):
        NoKnownAnswers(data, 2, False)


def test_numbers_are_no_texts():
    data = Dataset.from_dict({"anchor": ["a", "b"], "positive": [1, 2]})
    with pytest.raises(InputError, match="column 'positive': expected texts"):
        NoKnownAnswers(data, 2, False)


def test_a_trainer_sees_its_batches(tmp_path):
    """The steps of a run have the rows of the sampler, and no known answers among negatives."""
    save_model(tmp_path / "base")
    model, data, seen = load_model(tmp_path / "base"), texts(7, rows=90), []
    loss = MultipleNegativesRankingLoss(model)
    forward = loss.forward
    loss.forward = lambda features, labels: seen.append(len(labels)) or forward(features, labels)
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), per_device_train_batch_size=16, num_train_epochs=2, use_cpu=True,
        batch_sampler=NoKnownAnswers, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(model, arguments, data, loss=loss)
    trainer.train()
    assert trainer.state.global_step == 12
    assert sorted(seen) == sorted([16] * 10 + [10] * 2)


def test_rows_that_were_selected_have_the_batches_of_their_copies():
    """Of a table of which many rows are used, or few; and if others have no text."""
    whole = texts(3, rows=150)
    first = {"anchor": None, "positive": "x"}
    sides = {name: [text, *whole[name]] for name, text in first.items()}
    table = Dataset.from_dict(sides)
    named = table.filter(lambda anchor: anchor is not None, input_columns="anchor")
    shuffled, few = table.select(range(1, 151)).shuffle(seed=1), table.select([5, 9, 9, 2])
    for data in (named, shuffled, few):
        copied = Dataset.from_dict({name: data[name] for name in data.column_names})
        own, other = (
            list(NoKnownAnswers(rows, 16, False, None, Generator(), 1)) for rows in (data, copied)
        )
        assert own == other
    with pytest.raises(InputError, match="column 'anchor': has 1 rows without text"):
        NoKnownAnswers(table.shuffle(seed=1), 16, False)
