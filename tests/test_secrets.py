"""URLs with keys of any characters are refused, in words and files that have none of the keys."""

import traceback
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import batchplan
from batchplan import BatchplanError, Embeddings, InputError, ResourceError, load_embeddings
from batchplan.comparison import read_settings
from batchplan.comparison.settings import make_setting
from batchplan.consumption import Trace
from batchplan.consumption.plans import read_plans
from batchplan.data.labels import load_labels
from batchplan.data.texts import load_texts
from batchplan.gates import Baseline
from batchplan.materialize import materialize
from batchplan.planners import PLANNERS
from batchplan.plans import Negatives, Plan
from batchplan.plans.batching import Batching
from batchplan.plans.metadata import PlanMetadata
from batchplan.report.write import write_report
from batchplan.text import check_urls, keyed_url
from batchplan.training import EpochPlans, Recorder

X, Y = np.random.default_rng(0).standard_normal((2, 32, 4)).astype(np.float32)
DATA = Embeddings.from_arrays(X, Y)
PLAN = batchplan.plan(DATA, planner="random", batch_size=8)
TABLE = Path(__file__).parents[1] / "sample_data" / "pairs.parquet"
KEYS = "USER-KEY", "PASSWORD-KEY", "SIGNATURE-KEY"
ODD = st.sampled_from(" @/?#%:&=+\n\t;,.'\"\\")
ANY = st.text(st.one_of(ODD, st.characters(exclude_characters="\0")), max_size=5)
SCHEMES = st.sampled_from(["mock", "foo", "file", "FILE", "abfss+x", "0a"])


@st.composite
def urls(draw):
    """URLs with keys, also as a path shortens them."""
    parts = [draw(ANY) + key + draw(ANY) for key in KEYS]
    host = draw(st.sampled_from(["host", "", "h:80", "127.0.0.1"]))
    name = draw(st.sampled_from(["x.npy", "x.html", "x.parquet", "", "*.npy", "a/plan-0000.npz"]))
    url = f"{draw(SCHEMES)}://{parts[0]}:{parts[1]}@{host}/{name}?{parts[2]}"
    assume(not url.lower().startswith("file:///"))  # a path, of which no "@" ends a user
    return str(Path(url)) if draw(st.booleans()) else url


def said_of(error):
    """All that Python prints of an exception."""
    return "".join(traceback.format_exception(error))


def keys_in(keys, shown, folder=None):
    """Those that are in a text, or in the name or the bytes of a file of a folder."""
    texts = [text.encode(errors="backslashreplace") for text in shown]
    for path in [] if folder is None else folder.rglob("*"):
        texts += [bytes(path), path.read_bytes() if path.is_file() else b""]
    return [key for key in keys if any(key.encode() in text for text in texts)]


@given(ANY, urls(), ANY)
@example("", "s3://a/b:USER-KEY@c@host/a@b/x?PASSWORD-KEY?@", "; did you mean 'x'?")
def test_urls_with_keys_are_refused_wherever_they_are(before, url, after):
    for value in (f"{before}{url}{after}", Path("a", url), {"a": ["b", (url, 3)]}, {url: None}):
        with pytest.raises(InputError, match="got a URL with a password") as caught:
            check_urls(value)
        assert keys_in(KEYS, [said_of(caught.value)]) == []


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/x.npy?SIGNATURE-KEY",
        "s3://bucket/x.npy?region=eu&X-Amz-Signature=SIGNATURE-KEY",
        "s3://USER-KEY:a%zzPASSWORD-KEY@bucket/x.npy",
        "s3://USER-KEY:123/PASSWORD-KEY@bucket/x.npy",
        "s3://USER-KEY:123PASSWORD-KEY",  # cut off
        "s3://bucket/USER-KEY:PASSWORD-KEY@x.npy?region=eu",
        "s3:/USER-KEY:PASSWORD-KEY@bucket/x.npy",  # as a path shortens it
        "https://USER-KEY@host/x.npy",
        "gs://USER-KEY:PASSWORD-KEY@bucket/x.npy",
        "abfs://account:PASSWORD-KEY@container/x",
        "abfs://container@account/x?client_secret=PASSWORD-KEY",
        "hdfs://USER-KEY@host/x@PASSWORD-KEY",
        "file://USER-KEY:PASSWORD-KEY@/x.npy",
        "file:///x.npy?SIGNATURE-KEY",
    ],
)
def test_urls_that_may_have_keys(url):
    with pytest.raises(
        InputError, match=f"^{url.partition(':')[0]}://[.]{{3}}: got a URL"
    ) as caught:
        load_embeddings(url, single=True)
    assert keys_in(KEYS, [said_of(caught.value)]) == []


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/a%40b/x.npy: no such file; did you mean 'x'?",
        "s3://bucket/x/?endpoint_override=localhost:9000&scheme=http&region=eu",
        "gs://anonymous@bucket/x?retry_limit_seconds=3&project_id=a",
        "hdfs://user@host:8020/x?replication=1",
        "hdfs://host:8020",
        "abfs://container@account.dfs.core.windows.net/x?enable_tls=false&client_id=a",
        "/data/a:b@c/x.npy?: is a file",
        "C:/a@b, or see https://docs.ray.io/en/latest/",
        "x: got 3, expected 4; at 10:30/day @ home",
        "file:///a:b@c/x",
    ],
)
def test_other_text_has_no_keys(text):
    assert keyed_url(text) == ""


@settings(max_examples=20)
@given(urls())
def test_neither_options_nor_metadata_have_keys(url):
    for option in ({"resume": url}, {"label_table": url}, {"reference": ["x.npy", url]}):
        with pytest.raises(InputError, match="got a URL with a password") as caught:
            PLANNERS["partition"].options(group_column="g", **option)
        assert keys_in(KEYS, [said_of(caught.value)]) == []
    for facts in ({"planner": url}, {"options": {url: 1}}, {"options": {"path": Path(url)}}):
        with pytest.raises(InputError, match="got a URL with a password") as caught:
            PlanMetadata.stamped(Batching(8), 32, True, **facts)
        assert keys_in(KEYS, [said_of(caught.value)]) == []


CALLS = {
    "embeddings": lambda name: load_embeddings(name, single=True),
    "embeddings, alone": load_embeddings,
    "embeddings twice": lambda name: load_embeddings([name, name]),
    "the other side": lambda name: load_embeddings(name, pair=name),
    "a path": lambda name: load_embeddings(Path(name), single=True),
    "arrays": Embeddings.from_arrays,
    "labels": lambda name: load_labels("g", DATA, name),
    "a column": lambda name: load_labels(name, DATA, TABLE),
    "a side": lambda name: load_embeddings(TABLE, x_column=name),
    "texts": lambda name: load_texts("g", DATA, np.arange(3), name),
    "plan": Plan.load,
    "negatives": Negatives.load,
    "saved plan": PLAN.save,
    "baseline": Baseline.load,
    "settings": lambda name: read_settings(None, name, {}),
    "a setting": lambda name: make_setting("random", {"label_table": [name], name: name}),
    "trace": Trace,
    "plans": lambda name: read_plans([name]),
    "data": lambda name: materialize(PLAN, [name], "written"),
    "written data": lambda name: materialize(PLAN, ["x.parquet"], name),
    "page": lambda name: write_report({"plan": PLAN}, DATA, name),
    "pictures": lambda name: write_report({"plan": PLAN}, DATA, "page.html", png=name),
    "plans of epochs": lambda name: EpochPlans(name, embed=len, num_rows=32, batch_size=8),
    "recorder": Recorder,
    "a planner": lambda name: batchplan.plan(DATA, planner=name),
    "a type": lambda name: batchplan.plan(
        DATA, planner="random", label_table=[name], group_column="g"
    ),
    "a number": lambda name: batchplan.plan(DATA, planner="random", batch_size=name),
    "a limit": lambda name: batchplan.plan(DATA, planner="gcbs", reference=[name]),
}


@pytest.mark.parametrize("call", CALLS)
@settings(max_examples=50)
@given(url=urls())
def test_no_error_has_keys(call, url):
    with pytest.raises(BatchplanError) as caught:
        CALLS[call](url)
    assert keys_in(KEYS, [said_of(caught.value)]) == []


def test_epoch_plans_keep_no_keys_of_an_error(tmp_path):
    """Neither in the file by which the other processes learn of it, nor in what these raise; also
    where the reason is cut."""
    for number, long in enumerate(["", "x" * 1980]):

        def embed(rows, long=long):
            raise OSError(f"{long}: no s3://USER-KEY:PASSWORD-KEY@host/x.npy?SIGNATURE-KEY")

        folder, options = tmp_path / str(number), {"num_rows": 32, "batch_size": 8}
        first = EpochPlans(folder, embed=embed, rank=0, world_size=2, **options)
        with pytest.raises(OSError, match="no s3"):
            first.for_epoch(0)
        assert {path.name for path in folder.iterdir()} == {"plan-0000.error", "run.json"}
        assert keys_in(KEYS, [], folder) == []
        other = EpochPlans(folder, embed=lambda rows: X[rows], rank=1, world_size=2, **options)
        with pytest.raises(ResourceError, match="rank 0 failed with OSError") as caught:
            other.for_epoch(0)
        assert keys_in(KEYS, [str(caught.value)]) == []
