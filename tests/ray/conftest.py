"""A Ray cluster of two nodes of one processor each, on this machine, that all tests share. Only
runs that name this folder, as `make test-ray` does, collect them."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchplan

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


def pytest_ignore_collect(config):
    return None if any("tests/ray" in argument for argument in config.args) else True


@pytest.fixture(scope="session", autouse=True)
def _keys():
    """Keys of an object store in the environment, also of the processes of the cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "access")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "password")
        yield


@pytest.fixture(scope="session")
def cluster():
    """The cluster; this process is connected to it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args=NODE)
    nodes.add_node(**NODE)
    ray.init(nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture
def another_node(cluster):
    """A function that adds a node, which is taken away after the test if it is still there."""
    added = []

    def add(**more):
        added.append(cluster.add_node(**NODE, **more))
        cluster.wait_for_nodes()
        return added[-1]

    yield add
    for node in added:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node)


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """Shards of 600 pairs: those of x, and those of y."""
    folder, rng = tmp_path_factory.mktemp("shards"), np.random.default_rng(5)
    x = rng.standard_normal((600, 8)).astype(np.float32)
    y = x + rng.standard_normal((600, 8)).astype(np.float32) / 2
    for name, side in (("x", x), ("y", y)):
        for number, part in enumerate(np.split(side, [250])):
            np.save(folder / f"{name}{number}.npy", part)
    return [[folder / f"{name}{number}.npy" for number in range(2)] for name in "xy"]


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self):
        self.notes, self.done = [], 0

    def start(self, stage, total): ...

    def finish(self, stage, seconds): ...

    def advance(self, stage, steps):
        self.done += steps if stage == "plan" else 0

    def note(self, name, value):
        self.notes.append((name, value))

    def __getitem__(self, name):
        return [value for own, value in self.notes if own == name]


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
def plan_on(shards):
    """A function that plans five mega-batches of the shards, on Ray if it has an address."""

    def plan_on(address=None, observer=None, data=None, **options):
        data = data or batchplan.load_embeddings(*shards)
        options = {"mega_batches": 5, "batch_size": 8, "device": "cpu", **options}
        return batchplan.plan(data, ray=address, observer=observer, **options)

    return plan_on


@pytest.fixture(scope="session")
def expected(shards):
    """The bytes of the plan without Ray."""
    data = batchplan.load_embeddings(*shards)
    return bytes_of(batchplan.plan(data, mega_batches=5, batch_size=8, device="cpu"))


@pytest.fixture(scope="session")
def chosen(shards, tmp_path_factory):
    """Options of all kinds, and the bytes of the plan without Ray."""
    path, rows = tmp_path_factory.mktemp("labels") / "labels.parquet", np.arange(600)
    pq.write_table(pa.table({"group": rows % 200, "source": rows % 2}), path)
    options = {"label_table": str(path), "group_column": "group", "source_column": "source"}
    options |= {"tail": "pad", "seed": 3, "mega_batches": 2}
    data = batchplan.load_embeddings(*shards)
    for name, side in zip("xy", np.random.default_rng(1).random((2, 600, 5)), strict=True):
        np.save(path.with_name(f"{name}.npy"), side.astype(np.float32))
    x, y = (str(path.with_name(name)) for name in ("x.npy", "y.npy"))
    options |= {"reference": [x], "reference_pair": [y]}
    return options, bytes_of(batchplan.plan(data, batch_size=8, device="cpu", **options))


def bytes_of(plan):
    return plan.rows.tobytes(), plan.batch_offsets.tobytes(), plan.metadata


@pytest.fixture
def same(expected):
    """A function that requires the plan that is made without Ray."""

    def same(plan):
        assert bytes_of(plan) == expected

    return same
