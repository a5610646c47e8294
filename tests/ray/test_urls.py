"""Shards in an object store, which the workers of a cluster read: the plan from local files."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem, LocalFileSystem, copy_files

import batchplan
from batchplan import InputError

ray = pytest.importorskip("ray", reason="pip install batchplanner[ray]")
MOTO = Path(os.environ.get("APART", sys.prefix)) / "apart-moto"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server of S3's protocol, another process."""
    if not MOTO.is_dir():
        pytest.skip(f"no {MOTO}: make test-ray installs moto there")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    words = [sys.executable, "-m", "moto.server", "-H", address[0], "-p", str(address[1])]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            words, env={**os.environ, "PYTHONPATH": str(MOTO)}, stdout=output, stderr=output
        )
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(address):
                break
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
        yield f"{address[0]}:{address[1]}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def url(server, shards):
    """A function that gives the URL of a path; the shards are in folders x, y and t."""

    def url(path, **more):
        query = {"endpoint_override": server, "scheme": "http", **more}
        options = "&".join(f"{name}={value}" for name, value in query.items())
        return f"s3://bucket/{path}?{options}"

    system, bucket = FileSystem.from_uri(url("", allow_bucket_creation="true"))
    system.create_dir(bucket)
    for files in shards:
        for file in files:
            target = f"{bucket}/{file.name[0]}/{file.name}"
            copy_files(str(file), target, LocalFileSystem(), system)
    sides = [np.concatenate(list(map(np.load, files))) for files in shards]
    lists = [pa.FixedSizeListArray.from_arrays(pa.array(side.ravel()), 8) for side in sides]
    table = pa.table({"x": lists[0], "y": lists[1], "group": np.arange(600) % 200})
    pq.write_table(table, f"{bucket}/t/pairs.parquet", filesystem=system, row_group_size=100)
    return url


@pytest.fixture
def only_known_keys(server):
    """The server refuses keys that nobody made."""

    def after(requests):
        where = f"http://{server}/moto-api/reset-auth"
        plain = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(where, requests, plain)).close()

    after(b"0")
    yield
    after(b"inf")


@pytest.mark.parametrize("paths", [("x", "y/"), ("x/*.npy", "y"), ("t", None)])
def test_one_plan_with_and_without_ray(paths, url, plan_on, same, cluster):
    data = batchplan.load_embeddings(*(path and url(path) for path in paths))
    assert data.shards[0].path.startswith(f"s3://bucket/{paths[0][0]}/")
    same(plan_on(None, data=data))
    same(plan_on("auto", data=data))


def test_groups_and_a_reference_by_url(url, shards, plan_on):
    options = {"group_column": "group", "mega_batches": 2}
    data = batchplan.load_embeddings(url("t"))
    found = plan_on(None, data=data, **options, reference=[url("x")], reference_pair=[url("y")])
    x, y = ([str(path) for path in files] for files in shards)
    expected = plan_on(None, data=data, **options, reference=x, reference_pair=y)
    assert found.metadata == expected.metadata
    assert found.rows.tolist() == expected.rows.tolist()


def test_commands(url, shards, tmp_path):
    """A plan of a URL is checked against the files, and the other way round."""

    def run(*arguments):
        command = [sys.executable, "-m", "batchplan", *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    local = [*shards[0], *(word for path in shards[1] for word in ("--pair", path))]
    remote = [url("x"), "--pair", url("y")]
    for name, made, read in (("0.npy", remote, local), ("1.npy", local, remote)):
        done = run("random", *made, "-b", 8, "-o", name)
        gated = run("check", name, *read, "--fail-over", "coverage.repeats=0")
        assert (done.returncode, gated.returncode) == (0, 0), done.stderr + gated.stderr
    for more in ("", ".json"):
        files = [(tmp_path / f"{number}.npy{more}").read_bytes() for number in range(2)]
        assert files[0] == files[1]
    assert "s3://bucket/y/y1.npy" in run("inspect", *remote).stdout
    done = run("random", *local, "-b", 8, "-o", url("plan.npy"))
    assert done.returncode == 3
    assert "is a URL, expected a path" in done.stderr


def test_references_and_tables_of_commands(url, tmp_path):
    judge = {"reference": url("x"), "reference-pair": url("y/*.npy")}
    judged = [word for name, side in judge.items() for word in (f"--{name}", side)]
    grouped = ["--label-table", url("t/pairs.parquet"), "--group-column", "group"]
    lines = [f"{name} = {json.dumps([side])}\n" for name, side in judge.items()]
    lines += ["relative-margin = 0.1\n", "batch-size = 8\n"]
    (tmp_path / "settings.toml").write_text("[partition]\n" + "".join(lines))
    compare = f"compare --settings settings.toml --folder kept --json --random-trials 2 {url('t')}"
    for line in (
        f"partition {url('t')} -b 8 -o plan.npy",
        f"plan {url('t')} -b 8 -o chosen.npy",
        f"check plan.npy {url('t')} --fail-under coverage.share_seen=1 --write-baseline base.json",
        f"report plan.npy {url('t')} -o page.html --random-trials 2",
        compare,
    ):
        more = [] if line.startswith(("plan", "compare")) else [*judged, *grouped]
        command = [sys.executable, "-m", "batchplan", *line.split(), *more]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_no_bucket_and_no_file(url):
    for name in (url("none/x.npy"), url("x").replace("bucket", "bucket-of-nobody")):
        with pytest.raises(InputError, match=r"^s3://bucket.*: no such file or folder"):
            batchplan.load_embeddings(name)


def test_no_permission(url, only_known_keys):
    with pytest.raises(InputError, match=r"^s3://bucket/x: cannot be opened .*ACCESS_DENIED"):
        batchplan.load_embeddings(url("x"), url("y"))


def test_no_server(url):
    with pytest.raises(InputError, match=r"^s3://bucket/x: cannot be opened .*NETWORK_CONNECTION"):
        batchplan.load_embeddings(url("x", endpoint_override="127.0.0.1:1"))


def test_other_shards_when_a_worker_reads_them(url, plan_on, cluster):
    system, _ = FileSystem.from_uri(url(""))
    copy_files("bucket/y", "bucket/late", system, system)
    data = batchplan.load_embeddings(url("x"), url("late"))
    with system.open_output_stream("bucket/late/y1.npy") as file:
        np.save(file, np.zeros((300, 8), np.float32))
    with pytest.raises(InputError, match=r"^node \S+: s3://bucket/late/y1.npy: was written to"):
        plan_on("auto", data=data)
