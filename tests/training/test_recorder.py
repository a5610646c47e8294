"""`Recorder`: what it writes, and what it hands to the training step."""

import json
import os
import subprocess
from collections import UserDict

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from batchplan.consumption import Trace, verify
from batchplan.errors import InputError, OutputError
from batchplan.plans import Batching, Plan
from batchplan.training import PlanBatchSampler, Recorder, with_rows
from batchplan.training.rows import Numbered, take_rows

ROWS = 47


class Numbers(Dataset):
    """Row i is a number, a pair or a mapping that i tells."""

    def __init__(self, kind=float):
        self.kind = kind

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return self.kind(row)


def pair(row):
    return torch.tensor(row * 1.0), str(row)


def mapping(row):
    return {"x": row * 1.0, "text": str(row)}


def first_number(batch):
    values = batch["x"] if isinstance(batch, dict) else batch
    return [int(one) for one in (values[0] if isinstance(values, list | tuple) else values)]


def plan_of(seed=0):
    order = np.random.default_rng(seed).permutation(ROWS)
    return Plan.cut(order, Batching(4), num_rows=ROWS)


def lines(folder, rank=0):
    return [json.loads(line) for line in open(folder / f"trace.{rank}.jsonl")]


@pytest.mark.parametrize("kind", [float, pair, mapping])
@pytest.mark.parametrize("workers", [0, 2])
def test_wrap_leaves_the_batches_as_they_are(kind, workers, tmp_path):
    plan = plan_of()
    options = {"batch_sampler": PlanBatchSampler(plan), "num_workers": workers}
    usual = list(DataLoader(Numbers(kind), **options))
    loader = Recorder(tmp_path).wrap(DataLoader(Numbers(kind), **options))
    assert len(loader) == len(usual)
    for batch, other in zip(loader, usual, strict=True):
        assert type(batch) is type(other)
        assert first_number(batch) == first_number(other)
    start, *steps, end = lines(tmp_path)
    assert start == {"start": {"rank": 0, "world_size": 1}}
    assert end == {"epoch": 0, "end": 12}
    assert [line["rows"] for line in steps] == [batch.tolist() for batch in plan.batches()]
    assert [line["step"] for line in steps] == list(range(12))
    assert {line["plan"] for line in steps} == {plan.digest}
    assert verify({0: plan}, Trace(tmp_path)).exact


def test_own_collate_function_gets_what_it_got(tmp_path):
    def collate(rows):
        assert all(type(row) is tuple for row in rows)
        return "batch", [text for _, text in rows]

    loader = DataLoader(Numbers(pair), batch_size=10, collate_fn=collate)
    batches = list(Recorder(tmp_path).wrap(loader))
    assert batches[-1] == ("batch", ["40", "41", "42", "43", "44", "45", "46"])
    assert lines(tmp_path)[-2]["rows"] == list(range(40, 47))


def test_a_line_is_written_before_its_step(tmp_path):
    for step, _ in enumerate(Recorder(tmp_path).wrap(DataLoader(Numbers(), batch_size=10))):
        assert lines(tmp_path)[-1]["step"] == step


def test_epochs(tmp_path):
    """They are counted, or told, by the loop or by the loader."""
    recorder, loader = Recorder(tmp_path), DataLoader(Numbers(), batch_size=24)
    wrapped = recorder.wrap(loader)
    for _ in range(2):
        list(wrapped)
    list(recorder.wrap(loader))
    list(recorder.wrap(loader, epoch=7, step=3))
    wrapped = recorder.wrap(loader)
    loader.epoch, loader.steps = 11, 5
    list(wrapped)
    steps = [(line["epoch"], line["step"]) for line in lines(tmp_path) if "rows" in line]
    assert steps == [
        (e, s) for e, s in [(0, 0), (1, 0), (2, 0), (7, 3), (11, 5)] for s in (s, s + 1)
    ]
    assert lines(tmp_path)[-1] == {"epoch": 11, "end": 7}


def test_subsets_and_data_sets_that_know_their_rows(tmp_path):
    order = plan_of().rows.tolist()
    inner = Subset(Subset(Numbers(mapping), order[::-1]), range(ROWS)[::-1])
    known = Subset(with_rows(Numbers(mapping)), order)
    for number, dataset in enumerate((inner, known)):
        folder = tmp_path / str(number)
        seen = list(Recorder(folder).wrap(DataLoader(dataset, batch_size=4)))
        assert sorted(seen[0]) == ["text", "x"]
        assert verify({0: plan_of()}, Trace(folder)).exact
        assert len(dataset) == ROWS


def test_a_subset_may_be_the_data_set_that_was_planned(tmp_path):
    subset = Subset(Numbers(mapping), list(range(ROWS))[::-3])
    plan = Plan.cut(range(len(subset))[::-1], Batching(4), num_rows=len(subset))
    loaders = [DataLoader(data, batch_sampler=PlanBatchSampler(plan))
               for data in (subset, with_rows(subset))]  # fmt: skip
    for number, loader in enumerate(loaders):
        folder = tmp_path / str(number)
        list(Recorder(folder).wrap(loader))
        assert verify({0: plan}, Trace(folder)).exact
    shuffled = with_rows(Subset(Numbers(mapping), plan_of().rows.tolist()))
    assert [shuffled[row]["batchplan_row"] for row in range(ROWS)] == list(range(ROWS))


class Fetched(Numbers):
    """Rows are read for a whole batch at once, as from a table."""

    def __init__(self, kind):
        super().__init__(kind)
        self.fetched = 0

    def __getitems__(self, places):
        self.fetched += 1
        return [self.kind(place) for place in places]


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("kind", [pair, mapping])
def test_batches_are_fetched_once(kind, numbered, tmp_path):
    dataset = Fetched(kind)
    loader = DataLoader(with_rows(dataset) if numbered else dataset, batch_size=10)
    seen = list(Recorder(tmp_path).wrap(loader))
    assert dataset.fetched == len(seen) == 5
    assert [line["rows"] for line in lines(tmp_path)[1:-1]] == [
        list(range(start, min(start + 10, ROWS))) for start in range(0, ROWS, 10)
    ]


def test_with_rows_carries_numbers_through_any_loader(tmp_path):
    dataset = with_rows(Numbers(pair))
    batches = [[dataset[row] for row in rows] for rows in plan_of().batches()]
    for batch in Recorder(tmp_path).wrap(batches):
        assert [float(text) for _, text in batch] == [float(x) for x, _ in batch]
    assert verify({0: plan_of()}, Trace(tmp_path)).exact
    assert with_rows(Numbers(mapping))[5] == {"x": 5.0, "text": "5", "batchplan_row": 5}
    assert with_rows(with_rows(Numbers()))[5] == Numbered(5.0, 5)
    assert dataset.kind is pair


rows = torch.tensor([4, 2])


@pytest.mark.parametrize(
    ("batch", "rest"),
    [
        ({"x": 1, "batchplan_row": rows}, {"x": 1}),
        ({"x": 1, "batchplan_row": [4, 2]}, {"x": 1}),
        ({"x": 1, "batchplan_row": list(rows)}, {"x": 1}),
        ({"x": 1, "batchplan_row": rows.numpy()}, {"x": 1}),
        (UserDict({"x": 1, "batchplan_row": rows}), UserDict({"x": 1})),
        ({"json": {"x": 1, "batchplan_row": rows}}, {"json": {"x": 1}}),
        (({"x": 1, "batchplan_row": rows}, "y"), ({"x": 1}, "y")),
        ([{"x": 1, "batchplan_row": rows}, "y"], [{"x": 1}, "y"]),
        ([{"x": 1, "batchplan_row": row} for row in (4, 2)], [{"x": 1}, {"x": 1}]),
        ([{"json": {"batchplan_row": row}} for row in (4, 2)], [{"json": {}}, {"json": {}}]),
        (Numbered("x", rows), "x"),
        ([Numbered("x", row) for row in (4, 2)], ["x", "x"]),
        (Numbered(Numbered("x", None), rows), Numbered("x", None)),
    ],
)
def test_rows_are_taken_out_of_all_kinds_of_batches(batch, rest):
    before = str(batch)
    assert take_rows(batch) == (rest, [4, 2])
    assert type(take_rows(batch)[0]) is type(rest)
    assert str(batch) == before


def test_a_run_that_starts_again(tmp_path):
    """After a kill in the middle of a line; from a checkpoint before the last step."""
    plan = plan_of()
    sampler = PlanBatchSampler(plan)
    list(
        zip(
            range(8),
            Recorder(tmp_path).wrap(DataLoader(Numbers(), batch_sampler=sampler)),
            strict=False,
        )
    )
    path = tmp_path / "trace.0.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    sampler.start_at(6)
    list(Recorder(tmp_path).wrap(DataLoader(Numbers(), batch_sampler=sampler), epoch=0, step=6))
    assert sum(b'"start"' in line for line in path.read_bytes().splitlines()) == 2
    verdict = verify({0: plan}, Trace(tmp_path))
    assert verdict.exact
    assert verdict.steps == 12


SECOND = """
import sys
from batchplan.training import Recorder
list(Recorder(sys.argv[1]).wrap([{"batchplan_row": [1]}]))
"""


def test_a_second_process_with_the_same_rank_is_refused(tmp_path, programs):
    """Each would go back to the steps of the other, and one of two would look exact."""
    plan = plan_of()
    batches = iter(
        Recorder(tmp_path).wrap(DataLoader(Numbers(), batch_sampler=PlanBatchSampler(plan)))
    )
    next(batches)
    second = [programs / "python", "-c", SECOND, str(tmp_path)]
    refused = subprocess.run(second, capture_output=True, text=True)
    assert "another process records as rank 0 of 1 into it now" in refused.stderr
    assert len(list(batches)) == 11
    assert verify({0: plan}, Trace(tmp_path)).exact
    del batches
    assert subprocess.run(second).returncode == 0


def test_a_forked_worker_that_outlives_its_process_keeps_no_trace(tmp_path, programs):
    recorder = Recorder(tmp_path)
    list(recorder.wrap([{"batchplan_row": [1]}]))
    ended, end = os.pipe()
    if not (worker := os.fork()):
        os.read(ended, 1)
        os._exit(0)
    del recorder
    assert subprocess.run([programs / "python", "-c", SECOND, str(tmp_path)]).returncode == 0
    os.write(end, b".")
    os.waitpid(worker, 0)


class Stream(IterableDataset):
    def __iter__(self):
        return ({"batchplan_row": row, "x": float(row)} for row in plan_of().rows.tolist())


def test_streams_have_the_column(tmp_path):
    for batch in Recorder(tmp_path).wrap(DataLoader(Stream(), batch_size=4)):
        assert list(batch) == ["x"]
    assert verify({0: plan_of()}, Trace(tmp_path)).exact


def test_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    list(Recorder(tmp_path).wrap(DataLoader(Numbers(), batch_size=10)))
    assert lines(tmp_path, 1)[0] == {"start": {"rank": 1, "world_size": 2}}
    with pytest.raises(InputError, match=r"traces of 1 ranks, but 2 trained; no trace\.0\.jsonl"):
        Trace(tmp_path)


def test_refusals(tmp_path):
    with pytest.raises(InputError, match="a dict without batchplan_row; make the loader from"):
        list(Recorder(tmp_path).wrap([{"x": 1}]))
    with pytest.raises(InputError, match="trainer: got a str, expected a Trainer"):
        Recorder(tmp_path).attach("trainer")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="could not be written"):
        list(Recorder(tmp_path / "file").wrap([{"batchplan_row": [1]}]))
