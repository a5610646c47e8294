"""A command line that has a URL with keys is refused before anything can show or store them."""

import json

import numpy as np
import pytest
from typer.main import get_command

import batchplan
from batchplan.cli.app import app
from tests.test_secrets import keys_in

KEYS = "USER-KEY", "PASSWORD-KEY", "SIGNATURE-KEY"
URL = "s3://USER-KEY:PASSWORD-KEY@host/x.npy?SIGNATURE-KEY"
ODD = f"s3://USER-KEY:{300 * 'a'}/b ?PASSWORD-KEY#@c\n@host/x.npy?{300 * 'a'} SIGNATURE-KEY/x.npy"


@pytest.mark.parametrize(
    "words",
    [
        [URL],
        ["none", URL],
        ["inspect", ODD],
        ["gcbs", "x.npy", f"--pair={URL}"],
        ["gcbs", "x.npy", "-b", URL],
        ["gcbs", "x.npy", "--label-table", "file:///x.parquet?SIGNATURE-KEY"],
        ["random", "x.npy", f"-o{URL}"],
        ["inspect", f"--{URL}"],
        ["inspect", "--s3://USER-KEY:=PASSWORD-KEY@host/x.npy?SIGNATURE-KEY"],
        ["warmup", URL],
        ["compare", "x.npy", "--planners", "s3://USER-KEY,:PASSWORD-KEY,b@host/x.npy"],
        ["report", "plan.npy", "x.npy", "--text-columns", "s3://USER-KEY,:PASSWORD-KEY@host/x"],
    ],
)
def test_command_lines_with_keys_are_refused(words, run, folder):
    result = run(*words)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "error: " in result.stderr
    assert "://...: got a URL with a password or unknown parameters" in result.stderr
    assert keys_in(KEYS, [result.stderr], folder) == []


@pytest.mark.parametrize(
    "table", [f"[random]\nlabel-table = '{URL}'", f"['{URL}']", f"[random]\n'{URL}' = 1"]
)
def test_settings_with_keys_are_refused(table, run, folder, tmp_path_factory):
    settings = tmp_path_factory.mktemp("settings") / "settings.toml"
    settings.write_text(table)
    (folder / "x.npy").touch()
    result = run("compare", "x.npy", "--settings", settings, "-b", 8)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "s3://...: got a URL with a password" in result.stderr
    assert keys_in(KEYS, [result.stderr], folder) == []


@pytest.mark.parametrize("facts", [{"planner": URL}, {"options": {"label_table": [ODD]}}])
def test_plans_of_others_with_keys_are_refused(facts, run, folder):
    x = np.random.default_rng(0).random((32, 4), np.float32)
    batchplan.plan(x, x + 1, planner="random", batch_size=8).save(folder / "plan.npy")
    sidecar = folder / "plan.npy.json"
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | facts))
    result = run("inspect", "plan.npy")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "s3://...: got a URL with a password" in result.stderr
    assert keys_in(KEYS, [result.stderr]) == []


@pytest.mark.parametrize("command", sorted(get_command(app).commands))
def test_a_url_with_keys_in_each_option(command, run, folder):
    for parameter in get_command(app).commands[command].params:
        name = parameter.opts[0]
        for words in [[name, URL], [f"{name}={URL}"]] if name.startswith("-") else [[URL]]:
            result = run(command, *words)
            assert (result.exit_code, result.stdout) == (3, ""), words
            assert "s3://...: got a URL with a password" in result.stderr
            assert keys_in(KEYS, [result.stderr], folder) == []
