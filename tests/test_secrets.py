"""Keys in URLs, of any characters: no error, warning or file of the library has them."""

import dataclasses
import json
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import batchplan
from batchplan import BatchplanError, Embeddings, InputError, ResourceError, load_embeddings
from batchplan.cli.spelling import spelled
from batchplan.comparison import read_settings
from batchplan.comparison.children import run_child
from batchplan.comparison.settings import make_setting
from batchplan.consumption import Trace
from batchplan.consumption.plans import read_plans
from batchplan.data.labels import load_labels
from batchplan.data.texts import load_texts
from batchplan.gates import Baseline
from batchplan.materialize import materialize
from batchplan.options import recorded, shown
from batchplan.planners import PLANNERS
from batchplan.plans import Negatives, Plan
from batchplan.plans.batching import Batching
from batchplan.plans.metadata import PlanMetadata
from batchplan.quality import EvaluationOptions
from batchplan.refinement.options import RefineOptions
from batchplan.report.write import write_report
from batchplan.runtime import Runtime
from batchplan.text import public, without_secrets
from batchplan.training import EpochPlans, Recorder
from tests.data.test_urls import url as readable  # noqa: F401
from tests.every_option import keys_in

X, Y = np.random.default_rng(0).standard_normal((2, 32, 4)).astype(np.float32)
DATA = Embeddings.from_arrays(X, Y)
PLAN = batchplan.plan(DATA, planner="random", batch_size=8)
KEYS = "USER-KEY", "PASSWORD-KEY", "SIGNATURE-KEY"
ODD = st.sampled_from(" @/?#%:&=+\n\t;,.'\"\\")
ANY = st.text(st.one_of(ODD, st.characters(exclude_characters="\0")), max_size=5)
SCHEMES = st.sampled_from(["mock", "foo", "file", "FILE", "abfss+x", "0a"])
OPTIONS = [*(planner.options for planner in PLANNERS.values()), RefineOptions, EvaluationOptions]


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


@given(ANY, urls(), ANY)
@example("", "s3://a/b:USER-KEY@c@host/a@b/x?PASSWORD-KEY?@", "; did you mean 'x'?")
def test_no_text_has_keys(before, url, after):
    text = without_secrets(f"{before}{url}{after}")
    assert not any(key in text for key in KEYS)
    assert without_secrets(text) == text


@given(st.text("aZ09%+-_.=&"), st.text("aZ09%+-_.=&/"), st.integers(0, 80))
def test_nor_one_that_was_cut_off(first, more, size):
    url = f"s3://user:{first}PASSWORD-KEY{more}@host/x?SIGNATURE-KEY"
    assert keys_in(KEYS, [without_secrets(f"got {url}"[:size])]) == []


@settings(max_examples=20)
@given(urls())
def test_stored_options_have_no_keys(url):
    for kind in OPTIONS:
        options = kind()
        for field in dataclasses.fields(options):  # of any type: those to come too
            object.__setattr__(options, field.name, [url, {url: (url, 3)}])
        for values in (shown(options), recorded(options)):
            assert keys_in(KEYS, [json.dumps(values)]) == []
    named = PLANNERS["partition"].options(resume=url, label_table=None)
    assert keys_in(KEYS, [spelled("partition", [url], named)]) == []
    facts = {"planner": url, "options": {url: [url], "path": Path(url)}, "metrics": {"a": url}}
    stamped = PlanMetadata.stamped(Batching(8), 32, True, **facts)
    assert keys_in(KEYS, [json.dumps(stamped.to_dict()), repr(stamped)]) == []
    assert public(("a@b?c", 1, None)) == ["a@b?c", 1, None]


CALLS = {
    "embeddings": lambda name: load_embeddings(name, single=True),
    "embeddings, alone": load_embeddings,
    "embeddings twice": lambda name: load_embeddings([name, name]),
    "the other side": lambda name: load_embeddings(name, pair=name),
    "a path": lambda name: load_embeddings(Path(name), single=True),
    "arrays": Embeddings.from_arrays,
    "labels": lambda name: load_labels("g", DATA, name),
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


def test_epoch_plans_store_no_keys(tmp_path, readable):  # noqa: F811
    np.save(tmp_path / "x.npy", X)
    pq.write_table(pa.table({"g": np.arange(32) % 8}), tmp_path / "g.parquet")
    label, near = readable("g.parquet"), {"reference": [readable("x.npy")], "relative_margin": 0.1}
    plans = EpochPlans(
        tmp_path / "plans", embed=lambda rows: X[rows], batch_size=8, num_rows=32, planned_epochs=1,
        group_column="g", label_table=label, resume=str(tmp_path / "resumed"), **near,
    )  # fmt: skip
    plans.for_epoch(0)
    plans.for_epoch(1)
    assert (tmp_path / "plans" / "plan-0001.npz").exists()
    assert list((tmp_path / "resumed").glob("*.npz"))
    assert keys_in(("password", "secret"), [], tmp_path) == []


def test_a_job_leaves_no_keys(tmp_path):
    np.save(tmp_path / "x.npy", X)
    setting = make_setting("random", {"batch_size": 8})
    source = {"paths": [f"file://{tmp_path}/x.npy?SIGNATURE-KEY"], "single": True}
    run_child(setting, source, Runtime("cpu"), tmp_path / "plan.npz")
    assert (tmp_path / "plan.npz").exists()
    assert keys_in(KEYS, [], tmp_path) == []


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/x.npy?SIGNATURE-KEY",
        "s3://bucket/x.npy?allow_bucket_creation=SIGNATURE-KEY",
        "s3://USER-KEY:a%zzPASSWORD-KEY@bucket/x.npy",
        "gs://USER-KEY:PASSWORD-KEY@bucket/x.npy",
        "gs://anonymous@b/x?retry_limit_seconds=SIGNATURE-KEY",
        "file://USER-KEY:PASSWORD-KEY@/x.npy",
        "hf://USER-KEY:PASSWORD-KEY@datasets/x.npy",
        "s3://USER-KEY:123/PASSWORD-KEY@bucket/x.npy",
        "s3://bucket/USER-KEY:PASSWORD-KEY@x.npy?region=eu",
    ],
)
def test_what_libraries_say_of_a_url_has_no_keys(url):
    with pytest.raises(InputError, match="cannot be opened") as caught:
        load_embeddings(url, single=True)
    assert keys_in(KEYS, [said_of(caught.value)]) == []


class Refusing(BaseHTTPRequestHandler):
    """A store that has a file, and refuses to give it in words that repeat what it was asked."""

    def do_HEAD(self):
        self._answer(200, "")

    def do_GET(self):
        where = f"{KEYS[0]} at {self.headers['Host']}"
        self._answer(403, f"<Error><Code>AccessDenied</Code><Message>{where}</Message></Error>")

    def _answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text or 3200 * "a")))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_args): ...


@pytest.mark.parametrize("name", ["x.npy", "x.parquet", "x.safetensors"])
def test_what_a_store_says_while_it_is_read_has_no_keys(name):
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        query = f"endpoint_override={address}&scheme=http&region=eu"
        url = f"s3://{KEYS[0]}:{KEYS[1]}@bucket/{name}?{query}"
        with pytest.raises(InputError, match="ACCESS_DENIED") as caught:
            load_embeddings(url, single=True)
        server.shutdown()
    assert keys_in((*KEYS, address), [said_of(caught.value)]) == []
