"""Planning as a user does it: outputs, the summary, and inputs that come in many ways."""

import json
import os
import re
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.planners import PLANNERS, Planner
from batchplan.planners.papers.gcbs.planner import GcbsOptions
from batchplan.planners.random import RandomOptions
from batchplan.plans import Plan

SUFFIXES = (".npy", ".parquet", ".npz", ".jsonl", ".txt")
GCBS = ["gcbs", "-b", "8", "--neighbors", "4"]
# What makes a planner write a plan, where it would write a table of negatives.
AS_PLAN = {"hardneg": ["--as-batches"], "scns": ["--as-batches", "--per-row", "3"]}


@pytest.mark.parametrize(("planner", "suffix"), list(zip(PLANNERS, cycle(SUFFIXES), strict=False)))
def test_every_planner_and_every_format(planner, suffix, npy, done):
    options = AS_PLAN.get(planner, [])
    result = done(planner, *npy, "--batch-size", 8, "-o", f"p{suffix}", *options)
    plan = Plan.load(f"p{suffix}")
    assert (plan.batch_size, plan.metadata.planner) == (8, planner)
    if plan.metadata.partitions_rows:
        assert len(plan) == 6
        assert sorted(plan.rows) == list(range(48))
    assert result.stdout == ""


def test_the_default_output_is_plan_npy(npy, done, snapshot):
    before = snapshot()
    assert done("random", *npy, "-b", 8).stderr.endswith(" plan.npy\n")
    assert {str(path) for path in snapshot().keys() - before.keys()} == {
        "plan.npy",
        "plan.npy.json",
    }


@pytest.mark.parametrize("planner", ["bcs", "partition", "scns"])
def test_a_dash_is_text_on_standard_output(planner, npy, done, snapshot):
    before = snapshot()
    result = done(planner, *npy, "-b", 8, "-o", "-", *AS_PLAN.get(planner, []))
    assert snapshot() == before
    assert result.stderr.endswith(" standard output\n")
    done(planner, *npy, "-b", 8, "-o", "p.txt", *AS_PLAN.get(planner, []))
    assert result.stdout_bytes == Path("p.txt").read_bytes()


def test_parquet_carries_ids(parquet, done):
    done(*GCBS, parquet, "-o", "p.parquet")
    table = pq.read_table("p.parquet")
    assert table.column_names == ["batch", "row", "id"]
    assert table["id"].to_pylist() == [f"row {row}" for row in table["row"].to_pylist()]
    done(*GCBS, parquet, "-o", "q.parquet", "--id-column", "")
    assert pq.read_table("q.parquet").column_names == ["batch", "row"]


def test_the_summary(npy, done):
    lines = done(*GCBS, *npy).stderr.splitlines()
    summary = {line[:13].strip(): line[13:] for line in lines}
    assert list(summary) == ["rows", "batches", "seconds", "peak memory", "plan"]
    assert summary["rows"] == "48 x 8 float32"
    assert summary["batches"] == "6 of 8"
    assert re.fullmatch(r"\d+\.\d\d, of which [a-z-]+ \d+\.\d\d", summary["seconds"])
    verbose = done(*GCBS, *npy, "-v", "--force").stderr.splitlines()
    (seconds,) = (line[13:] for line in verbose if line.startswith("seconds"))
    stages = ("start-up", "read", "answers", "prepare", "graph", "order", "write")
    each = ", ".join(rf"{stage} \d+\.\d\d" for stage in stages)
    assert re.fullmatch(rf"\d+\.\d\d, of which {each}", seconds)
    assert re.fullmatch(r"\d+\.\d [MG]B.*", summary["peak memory"])


def test_json_tells_the_same(npy, done):
    result = done(*GCBS, *npy, "--json")
    assert result.stderr == ""
    facts = json.loads(result.stdout)
    metadata = Plan.load("plan.npy").metadata
    assert facts["planner"] == "gcbs"
    assert facts["output"] == "plan.npy"
    assert [facts[name] for name in ("num_rows", "dim")] == [48, 8]
    assert [facts[name] for name in ("num_batches", "batch_size")] == [6, 8]
    assert {name: facts[name] for name in metadata.metrics} == metadata.metrics
    assert facts["edges"] == 192
    stages = ["start-up", "read", "answers", "prepare", "graph", "order", "write"]
    assert list(facts["seconds"]) == stages
    assert facts["seconds_total"] == pytest.approx(sum(facts["seconds"].values()), abs=1e-3)
    assert facts["peak_memory_bytes"] > 1e6
    assert facts["peak_device_memory_bytes"] >= 0
    assert facts["fingerprint"] == metadata.fingerprint


@pytest.mark.parametrize("planner", ["bcs", "partition", "scns"])
def test_quiet_says_nothing(planner, npy, done):
    assert done(planner, *npy, "-b", 8, "-q").output == ""
    assert done(planner, *npy, "-b", 8, "-f", "--quiet").output == ""
    options = AS_PLAN.get(planner, [])
    only_data = done(planner, *npy, "-b", 8, "-q", "-o", "-", *options)
    assert only_data.stderr == ""
    done(planner, *npy, "-b", 8, "-q", "-o", "p.npy", *options)
    assert len(only_data.stdout.splitlines()) == len(Plan.load("p.npy").rows)


def test_verbose_tells_what_happens_on_the_way(npy, done, monkeypatch):
    def make(embeddings, options, runtime):
        runtime.note("retry", "of [red]:smile:[/red]\n2")
        return PLANNERS["gcbs"].load()(embeddings, GcbsOptions(batch_size=8), runtime)

    monkeypatch.setitem(PLANNERS, "random", Planner(make, RandomOptions, "", ""))
    told = r"retry: of [red]:smile:[/red]\n2"
    assert told in done("random", *npy, "-b", 8, "-v").stderr.splitlines()
    assert told not in done("random", *npy, "-b", 8, "-f").stderr


def test_options_reach_the_plan(npy, done):
    options = ["--tail", "pad", "--batch-order", "shuffled", "--similarity", "dot", "--no-reverse"]
    done("gcbs", *npy, "-b", 10, "--seed", 3, "--quantile", 0.9, *options)
    metadata = Plan.load("plan.npy").metadata
    assert (metadata.seed, metadata.tail, metadata.batch_order) == (3, "pad", "shuffled")
    assert metadata.options == {
        "batch_order": "shuffled",
        "batch_size": 10,
        "group_column": None,
        "anchor_id": None,
        "positive_id": None,
        "negative_id": None,
        "known": None,
        "guard": True,
        "guard_penalty": None,
        "label_table": None,
        "absolute_margin": None,
        "max_score": None,
        "relative_margin": None,
        "reference": None,
        "reference_pair": None,
        "neighbors": None,
        "quantile": 0.9,
        "refine": 0,
        "reverse": False,
        "scope": "device",
        "similarity": "dot",
        "tail": "pad",
        "temperature": 0.05,
        "world_size": 1,
    }


def test_the_seed_decides(npy, done):
    texts = [
        done("random", *npy, "-b", 8, "-o", "-", "--seed", seed).stdout for seed in (0, 0, 1, 2**80)
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3
    assert texts[0] == done("random", *npy, "-b", 8, "-o", "-").stdout


# The same rows in other files


NATURAL = ["--shard-order", "natural"]


def shards(folder, name, array, sizes, kind="npy"):
    """Shards of the array; those with numbers of two digits come last in natural order only."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    start = 0
    for number, size in zip((1, 2, 10), sizes, strict=True):
        part = array[start : start + size]
        start += size
        if kind == "npy":
            np.save(f"{folder}/{name}_{number}.npy", part)
        else:
            table = pa.table({"v": pa.array(list(part), pa.list_(pa.float32()))})
            pq.write_table(table, f"{folder}/{name}_{number}.parquet")
    assert start == len(array)


def folders(x, y):
    shards("x", "s", x, (20, 20, 8))
    shards("y", "t", y, (1, 2, 45))
    return ["x", "--pair", "y", *NATURAL]


def globs(x, y):
    folders(x, y)
    return ["x/*.npy", "--pair", "y/t_*.npy", *NATURAL]


def listed(x, y):
    folders(x, y)
    names = (1, 2, 10)
    pair = [part for n in names for part in ("--pair", f"y/t_{n}.npy")]
    return [*(f"x/s_{n}.npy" for n in names), *pair]


def parquet_shards(x, y):
    shards("x", "s", x, (20, 20, 8), "parquet")
    shards("y", "t", y, (7, 40, 1), "parquet")
    return ["x", "--pair", "y", *NATURAL]


def one_parquet(x, y):
    sides = {"x": pa.array(list(x)), "y": pa.array(list(y))}
    pq.write_table(pa.table(sides), "both.parquet", row_group_size=7)
    return ["both.parquet"]


def one_parquet_of_many_columns(x, y):
    fixed = pa.FixedSizeListArray.from_arrays(x.ravel(), 8)
    columns = {"other": pa.array(list(y)), "second": pa.array(list(y)), "first": fixed}
    pq.write_table(pa.table(columns), "both.parquet")
    return ["both.parquet", "--x-column", "first", "--y-column", "second"]


def mixed_kinds(x, y):
    np.save("x.npy", x)
    shards("y", "t", y, (7, 40, 1), "parquet")
    return ["x.npy", "--pair", "y", *NATURAL]


def fortran_order(x, y):
    np.save("x.npy", np.asfortranarray(x))
    np.save("y.npy", np.asfortranarray(y))
    return ["x.npy", "--pair", "y.npy"]


def big_endian(x, y):
    np.save("x.npy", x.astype(">f4"))
    np.save("y.npy", y.astype(">f4"))
    return ["x.npy", "--pair", "y.npy"]


def float64(x, y):
    np.save("x.npy", x.astype(np.float64))
    np.save("y.npy", y.astype(np.float64))
    return ["x.npy", "--pair", "y.npy"]


LAYOUTS = [
    folders,
    globs,
    listed,
    parquet_shards,
    one_parquet,
    one_parquet_of_many_columns,
    mixed_kinds,
    fortran_order,
    big_endian,
    float64,
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one.__name__)
def test_the_same_rows_give_the_same_bytes(layout, npy, pairs, done):
    done(*GCBS, *npy, "-o", "plain.npy", "--seed", 5, "--batch-order", "shuffled")
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    given = layout(*pairs)
    done(*GCBS, *given, "-o", "p.npy", "--seed", 5, "--batch-order", "shuffled")
    assert Path("p.npy").read_bytes() == Path("../plain.npy").read_bytes()
    stored = Path("p.npy.json").read_text()
    if NATURAL[1] in given:  # an order that mattered is stored with the plan
        stored = stored.replace('  "shard_order": "natural",\n', "")
    assert stored == Path("../plain.npy.json").read_text()


def test_the_working_directory_does_not_matter(npy, folder, done, monkeypatch):
    plans = []
    for place, prefix in ((".", ""), (".", f"{folder}/"), ("sub", "../"), ("sub", f"{folder}/")):
        Path(folder / place).mkdir(exist_ok=True)
        monkeypatch.chdir(folder / place)
        arguments = [f"{prefix}x.npy", "--pair", f"{prefix}y.npy"]
        done(*GCBS, *arguments, "-o", f"{prefix}p.npz", "--force")
        plans.append(Path(folder / "p.npz").read_bytes())
    assert len(set(plans)) == 1


def test_the_module_and_the_script_do_the_same(npy, folder):
    script = Path(sys.executable).with_name("batchplan")
    commands = [[sys.executable, "-m", "batchplan"], [script]][: 1 + script.exists()]
    for command in commands:
        arguments = ["random", *npy, "-b", "8", "-q", "-o", "-"]
        done = subprocess.run([*command, *arguments], capture_output=True, check=True)
        assert sorted(map(int, done.stdout.split())) == list(range(48))
        assert done.stderr == b""
        version = subprocess.run([*command, "--version"], capture_output=True, check=True)
        assert re.fullmatch(rb"batchplan \d+\.\d+\.\d+\n", version.stdout)
        assert b"Usage: batchplan [" in subprocess.run([*command, "--help"], stdout=-1).stdout


def test_bcs_says_what_it_will_cost_before_it_starts(npy, done):
    lines = done("bcs", *npy, "-b", 8).stderr.splitlines()
    assert re.fullmatch(r"cost: \S+ updates of sums; .* of logits .*", lines[0])
    assert done("bcs", *npy, "-b", 8, "-f", "-q").stderr == ""
