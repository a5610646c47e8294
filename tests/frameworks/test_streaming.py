"""Loaders that only stream: from data in plan order they yield the batches of the plan.

What each device's loader yields is compared with the plan's own rows and offsets. Devices are
processes with the variables that torchrun sets; they meet over gloo where a loader asks for that.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import shlex
import shutil
import socket
import sys
import types
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from batchplan.cli.app import app
from batchplan.errors import InputError
from batchplan.materialize import materialize
from batchplan.plans import Batching, Plan
from batchplan.training import with_rows
from tests.docs.blocks import ROOT, blocks_of

ROWS, BATCH = 1003, 16

devices = pytest.mark.parametrize("world_size", [1, 2, 4])


def plan_of(world_size=1, tail="keep", scope="device", rows=ROWS):
    order = np.random.default_rng(0).permutation(rows)
    batching = Batching(BATCH, world_size=world_size, tail=tail, scope=scope)
    return Plan.cut(order, batching, num_rows=rows)


def parts_of(plan):
    """The rows of each step of each device, from the plan's rows and offsets alone."""
    size = plan.metadata.world_size
    batches = [
        plan.rows[start:stop].tolist()
        for start, stop in zip(plan.batch_offsets[:-1], plan.batch_offsets[1:], strict=True)
    ]
    if plan.metadata.scope == "device":
        return [batches[rank::size] for rank in range(size)]
    return [
        [np.array_split(batch, size)[rank].tolist() for batch in batches] for rank in range(size)
    ]


@pytest.fixture
def data(tmp_path):
    """A table with texts, vectors, labels and bytes."""
    rng = np.random.default_rng(1)
    columns = {
        "anchor": [f"question {i}" for i in range(ROWS)],
        "label": np.arange(ROWS, dtype=np.int32) % 7,
        "vector": pa.FixedSizeListArray.from_arrays(
            pa.array(rng.standard_normal(ROWS * 4).astype(np.float32)), 4
        ),
        "score": rng.standard_normal(ROWS),
        "flag": np.arange(ROWS) % 3 == 0,
        "bin": [bytes([i % 256]) * (i % 5) for i in range(ROWS)],
    }
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    return tmp_path / "data.parquet"


@pytest.fixture
def written(data, tmp_path):
    """Materialize, and return the folder."""

    def written(plan, output="out", **options):
        materialize(plan, data, tmp_path / output, shard_rows=100, **options)
        return str(tmp_path / output)

    return written


def in_processes(program, world_size, *arguments):
    """What ``program(rank, world_size, *arguments)`` returns, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(world_size, mp_context=context) as pool:
        ranks = [
            pool.submit(_in_process, rank, world_size, port, program, arguments)
            for rank in range(world_size)
        ]
        for failed in wait(ranks, return_when=FIRST_EXCEPTION).done:
            if failed.exception():  # the others would wait for it
                for process in multiprocessing.active_children():
                    process.kill()
                failed.result()
        return [rank.result() for rank in ranks]


def _in_process(rank, world_size, port, program, arguments):
    import torch

    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # as usual, for the workers of loaders
    names = {"RANK": rank, "LOCAL_RANK": rank, "GLOBAL_RANK": rank, "MASTER_PORT": port}
    sizes = {"WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
    os.environ |= {name: str(value) for name, value in {**names, **sizes}.items()}
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    return program(rank, world_size, *arguments)


def rows_of(loader):
    """The row numbers of each batch that a loader yields."""
    return [[int(row) for row in batch["batchplan_row"]] for batch in loader]


TAKEN = 30  # batches before a loader is left and another goes on: of 63, 31 or 15


def resumed(make, workers, steps):
    """The rows of the batches of a loader that is left in the middle, and of another that goes on
    from its state; ``make`` returns a new one."""
    taken = min(TAKEN, steps // 2)
    first = make(workers)
    batches = iter(first)
    seen = rows_of(islice(batches, taken))
    state = first.state_dict()
    del batches
    other = make(workers)
    other.load_state_dict(state)
    return seen + rows_of(other)


# MDS


@pytest.fixture
def alone(tmp_path_factory):
    """No other test here opens MDS: its datasets look for a free name in the machine's shared
    memory, and take it later."""
    with (tmp_path_factory.getbasetemp().parent / "mds.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def mosaic():
    """The package, without its examples of vision and text, which need torchvision."""
    for name in ("vision", "text", "multimodal"):
        sys.modules.setdefault(f"streaming.{name}", types.ModuleType(f"streaming.{name}"))
    import streaming

    return streaming


def meet(world_size):
    """As a training does before it makes datasets. Without, each dataset makes a group of its own,
    and the first rank that is done with it resets the connections of the others."""
    from torch import distributed

    if world_size > 1:
        distributed.init_process_group("gloo")


def mds_batches(rank, world_size, folders):
    from torch.utils.data import DataLoader

    meet(world_size)
    datasets = [
        mosaic().StreamingDataset(
            local=folder, batch_size=BATCH, shuffle=False, num_canonical_nodes=1
        )
        for folder in folders.values()
    ]
    return [
        rows_of(DataLoader(dataset, batch_size=BATCH, num_workers=workers))
        for dataset, workers in zip(datasets, folders, strict=True)
    ]


@devices
def test_mds(world_size, written, alone):
    plan = plan_of(world_size, "keep" if world_size == 1 else "drop")
    folders = {
        workers: written(plan, str(workers), format="mds", layout="strided") for workers in (0, 2)
    }
    for parts, expected in zip(
        in_processes(mds_batches, world_size, folders), parts_of(plan), strict=True
    ):
        assert parts == [expected, expected]


def mds_resumed(rank, world_size, folders, steps):
    meet(world_size)

    def make(workers):
        streaming = mosaic()
        dataset = streaming.StreamingDataset(
            local=folders[workers], batch_size=BATCH, shuffle=False, num_canonical_nodes=1
        )
        return streaming.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers)

    return [resumed(make, workers, steps) for workers in folders]


@pytest.mark.parametrize("world_size", [1, 2])
def test_mds_goes_on_in_its_epoch(world_size, written, alone):
    plan = plan_of(world_size, "keep" if world_size == 1 else "drop")
    folders = {
        workers: written(plan, str(workers), format="mds", layout="strided") for workers in (0, 2)
    }
    expected = parts_of(plan)
    seen = in_processes(mds_resumed, world_size, folders, len(expected[0]))
    assert seen == [[own, own] for own in expected]


def test_mds_holds_every_column(written, data, alone):
    plan = plan_of()
    folder = written(plan, format="mds")
    table = pq.read_table(data)
    dataset = mosaic().LocalDataset(folder)
    assert len(dataset) == ROWS
    for place in (0, 1, 99, 100, ROWS - 1):
        sample, row = dataset[place], int(plan.rows[place])
        assert sample["batchplan_row"] == row
        for name in ("anchor", "label", "score", "flag", "bin"):
            assert sample[name] == table[name][row].as_py()
        assert sample["vector"].tolist() == table["vector"][row].as_py()


# WebDataset


def web_batches(folder, workers, batch=BATCH, shuffle=0):
    import webdataset
    from torch.utils.data import DataLoader

    shards = sorted(map(str, Path(folder).glob("*.tar")))
    dataset = webdataset.WebDataset(shards, shardshuffle=False, nodesplitter=None).decode()
    if shuffle:
        dataset = dataset.shuffle(shuffle)
    dataset = dataset.batched(batch, collation_fn=list)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    return [[sample["json"]["batchplan_row"] for sample in samples] for samples in loader]


@devices
@pytest.mark.parametrize("scope", ["device", "global"])
@pytest.mark.parametrize("workers", [0, 2])
def test_webdataset(world_size, scope, workers, written):
    plan = plan_of(world_size, scope=scope)
    folder = written(plan, format="webdataset", layout="ranks", workers=max(workers, 1))
    parts = parts_of(plan)
    for rank, own in enumerate(parts):
        assert web_batches(f"{folder}/rank-{rank}", workers, len(own[0])) == own


def test_webdataset_keeps_no_state(written):
    """So a loader reads what was trained on again, and passes over it."""
    import webdataset

    plan = plan_of()
    folder = written(plan, format="webdataset")
    assert not hasattr(webdataset.WebDataset([f"{folder}/none.tar"]), "state_dict")
    (own,) = parts_of(plan)
    assert list(islice(web_batches(folder, 0), TAKEN, None)) == own[TAKEN:]


def test_two_workers_need_their_own_shards(written, tmp_path, data):
    """What --workers is for: 63 of 63 batches instead of some."""
    plan = plan_of()
    (own,) = parts_of(plan)
    together = written(plan, format="webdataset")
    apart = tmp_path / "apart"
    materialize(plan, data, apart, format="webdataset", workers=2)

    def intact(batches):
        return sum(sorted(batch) in map(sorted, own) for batch in batches)

    assert len(own) == 63
    assert web_batches(together, 0) == own
    assert web_batches(together, 2) != own
    assert web_batches(apart, 2) == own
    assert intact(web_batches(apart, 2)) == 63
    assert intact(web_batches(together, 0, shuffle=1000)) == 0


def test_webdataset_holds_every_column(written, data):
    import webdataset

    plan = plan_of()
    folder = written(plan, format="webdataset")
    table = pq.read_table(data)
    shards = sorted(map(str, Path(folder).glob("*.tar")))
    samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode())
    assert len(samples) == ROWS
    for place in (0, 1, 99, 100, ROWS - 1):
        sample, row = samples[place], int(plan.rows[place])
        assert sample["__key__"] == f"{place:09d}"
        assert sample["bin"] == table["bin"][row].as_py()
        expected = table.drop_columns(["bin"])[row : row + 1].to_pylist()[0]
        vector = sample["json"].pop("vector")
        assert np.array_equal(np.float32(vector), np.float32(expected.pop("vector")))
        assert sample["json"] == {**expected, "batchplan_row": row}


# LitData


def litdata_batches(rank, world_size, folders):
    import litdata
    from litdata.streaming.item_loader import ParquetLoader

    batches = []
    for workers, folder in folders.items():
        dataset = litdata.StreamingDataset(folder, item_loader=ParquetLoader(), shuffle=False)
        context = "spawn" if workers else None  # Polars cannot be forked
        loader = litdata.StreamingDataLoader(
            dataset, batch_size=BATCH, num_workers=workers, multiprocessing_context=context
        )
        batches.append(rows_of(loader))
    return batches


@devices
def test_litdata(world_size, written):
    plan = plan_of(world_size, "keep" if world_size == 1 else "drop")
    options = {"format": "litdata", "layout": "rank-major"}
    folders = {
        workers: written(plan, str(workers), workers=max(workers, 1), **options)
        for workers in (0, 2)
    }
    for parts, expected in zip(
        in_processes(litdata_batches, world_size, folders), parts_of(plan), strict=True
    ):
        assert parts == [expected, expected]


def litdata_resumed(rank, world_size, folders, steps):
    def make(workers):
        import litdata
        from litdata.streaming.item_loader import ParquetLoader

        dataset = litdata.StreamingDataset(
            folders[workers], item_loader=ParquetLoader(), shuffle=False
        )
        context = "spawn" if workers else None
        return litdata.StreamingDataLoader(
            dataset, batch_size=BATCH, num_workers=workers, multiprocessing_context=context
        )

    return [resumed(make, workers, steps) for workers in folders]


@pytest.mark.parametrize("world_size", [1, 2])
def test_litdata_goes_on_in_its_epoch(world_size, written):
    plan = plan_of(world_size, "keep" if world_size == 1 else "drop")
    options = {"format": "litdata", "layout": "rank-major"}
    folders = {
        workers: written(plan, str(workers), workers=max(workers, 1), **options)
        for workers in (0, 2)
    }
    expected = parts_of(plan)
    seen = in_processes(litdata_resumed, world_size, folders, len(expected[0]))
    assert seen == [[own, own] for own in expected]


# datasets


def test_datasets_opens_the_arrow_folder(written, data):
    import datasets

    plan = plan_of()
    dataset = datasets.load_from_disk(written(plan, format="arrow"))
    assert dataset["batchplan_row"][:] == plan.rows.tolist()
    assert dataset["anchor"][:] == [f"question {row}" for row in plan.rows]
    assert dataset.features["vector"].length == 4
    with pytest.raises(InputError, match=r"its column batchplan_row is not 0 to .* or remove"):
        with_rows(dataset)  # planned again, its vectors would be recorded for other rows
    dataset = with_rows(dataset.remove_columns("batchplan_row"))
    assert with_rows(dataset)["batchplan_row"][:] == list(range(len(dataset)))


def test_features_of_datasets_are_kept(tmp_path):
    import datasets

    features = datasets.Features(
        {"text": datasets.Value("string"), "kind": datasets.ClassLabel(names=["a", "b"])}
    )
    rows = {"text": list(map(str, range(ROWS))), "kind": [i % 2 for i in range(ROWS)]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")
    plan = plan_of()
    materialize(plan, tmp_path / "saved", tmp_path / "out", format="arrow")
    dataset = datasets.load_from_disk(tmp_path / "out")
    assert dataset.features["kind"] == features["kind"]
    assert dataset["text"][:] == list(map(str, plan.rows))


@devices
def test_datasets_split_by_node(world_size, written):
    """Each device a contiguous part of rows in memory, or every W-th of a stream."""
    import datasets
    from datasets.distributed import split_dataset_by_node
    from torch.utils.data import DataLoader

    plan = plan_of(world_size, "keep" if world_size == 1 else "drop")
    dataset = datasets.load_from_disk(written(plan, format="arrow", layout="rank-major"))
    for rank, own in enumerate(parts_of(plan)):
        part = split_dataset_by_node(dataset, rank=rank, world_size=world_size)
        assert rows_of(DataLoader(part, batch_size=BATCH)) == own


@devices
@pytest.mark.parametrize("workers", [0, 2])
def test_datasets_streams(world_size, workers, written):
    import datasets
    from torch.utils.data import DataLoader

    plan = plan_of(world_size)
    folder = written(plan, layout="ranks", workers=max(workers, 1), column=["anchor"])
    shards = [
        shard["path"] for shard in json.loads(Path(folder, "_batchplan.json").read_text())["shards"]
    ]
    for rank, own in enumerate(parts_of(plan)):
        files = [f"{folder}/{path}" for path in shards if path.startswith(f"rank-{rank}/")]
        stream = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
        assert rows_of(DataLoader(stream, batch_size=BATCH, num_workers=workers)) == own


@devices
@pytest.mark.parametrize("workers", [0, 2])
def test_datasets_streams_go_on_in_their_epoch(world_size, workers, written):
    """With the StatefulDataLoader of torchdata; without workers, the stream's own state, or a skip
    of the rows that were read, does."""
    import datasets
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader import StatefulDataLoader

    plan = plan_of(world_size)
    folder = written(plan, layout="ranks", workers=max(workers, 1), column=["anchor"])
    shards = [
        shard["path"] for shard in json.loads(Path(folder, "_batchplan.json").read_text())["shards"]
    ]
    for rank, own in enumerate(parts_of(plan)):
        files = [f"{folder}/{path}" for path in shards if path.startswith(f"rank-{rank}/")]

        def stream(files=files):
            return datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)

        def make(workers, stream=stream):
            return StatefulDataLoader(stream(), batch_size=BATCH, num_workers=workers)

        assert resumed(make, workers, len(own)) == own
        if not workers:
            first = stream()
            batches = iter(DataLoader(first, batch_size=BATCH))
            seen = rows_of(islice(batches, 7))
            rest = stream()
            rest.load_state_dict(first.state_dict())
            assert seen + rows_of(DataLoader(rest, batch_size=BATCH)) == own
            rest = stream().skip(7 * BATCH)
            assert seen + rows_of(DataLoader(rest, batch_size=BATCH)) == own


# torch


@devices
def test_distributed_sampler(world_size, written):
    """Row i to device i mod W, as it deals them out without shuffling."""
    import datasets
    from torch.utils.data import DataLoader, DistributedSampler

    plan = plan_of(world_size, "keep" if world_size == 1 else "drop")
    dataset = datasets.load_from_disk(written(plan, format="arrow", layout="strided"))
    for rank, own in enumerate(parts_of(plan)):
        sampler = DistributedSampler(dataset, world_size, rank, shuffle=False)
        assert rows_of(DataLoader(dataset, batch_size=BATCH, sampler=sampler)) == own


def test_the_page(tmp_path, monkeypatch, alone):
    """Each program of docs/materialize.md yields the batches of the plan."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "sample_data", "sample_data")
    mosaic()
    compared = 0
    names = {}
    for block in blocks_of(ROOT / "docs" / "materialize.md"):
        if block.language == "sh":
            for command, _ in block.commands():
                result = CliRunner().invoke(app, shlex.split(command)[1:])
                assert result.exit_code == 0, result.output
        elif block.language == "python":
            exec(compile(block.text, f"materialize.md, line {block.line}", "exec"), names)
            if block.like == "frameworks":
                plan = Plan.load("plan.npy")
                assert names["batches"] == [batch.tolist() for batch in plan.batches()]
                compared += 1
    assert compared == 4
