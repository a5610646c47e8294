"""Files that are not read: each is named for what it is, with a way that works. The code in a
message is run here."""

from __future__ import annotations

import json
import pickle
import re

import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
import torch

from batchplan import InputError
from batchplan.data import load_embeddings

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
BITS = (X > 0).astype(np.float32)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refusal(path, *parts):
    with pytest.raises(InputError) as error:
        load_embeddings(path)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 500
    assert text.startswith(f"{path}: ")
    for part in parts:
        assert part in text, text
    return text


def follow(text):
    """Run the statements of a message."""
    exec(re.search(r"import [^;]+; [^;]+", text)[0])


def same(path, rows=X):
    assert load_embeddings(path).fingerprint == load_embeddings(rows).fingerprint


def test_json_lines(tmp_path):
    rows = [json.dumps({"id": n, "x": row.tolist()}) for n, row in enumerate(X)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    follow(refusal("a.jsonl", "JSON lines", "batchplan embed"))
    same("x.parquet")
    assert load_embeddings("x.parquet").ids.to_pylist() == list(range(20))


def test_json_lines_of_lists(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, X.tolist())))
    follow(refusal("a.jsonl", "JSON lines"))
    same("x.npy")


@pytest.mark.parametrize("header", [True, False])
def test_csv(header):
    pd.DataFrame(X.astype(float)).to_csv("a.csv", index=False, header=header)
    text = refusal("a.csv", "(CSV)", "skiprows=1 if there is a header")
    if header:
        text = re.sub("delimiter=','", "delimiter=',', skiprows=1", text, count=1)
    follow(text)
    same("x.npy")


def test_csv_of_lists():
    pd.DataFrame({"id": range(20), "x": X.tolist()}).to_csv("a.csv", index=False)
    follow(refusal("a.csv", "here 'x'"))
    same("x.npy")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_one_column_a_dimension(kind):
    table = pa.table({"id": range(20), **{f"d{n}": X[:, n % 4] for n in range(768)}})
    write = pq.write_table if kind == "parquet" else pa.feather.write_feather
    write(table, f"a.{kind}")
    follow(refusal(f"a.{kind}", "a column for each of 768 dimensions"))
    same("x.npy", np.tile(X, 192))


def test_files_without_a_header():
    np.tile(X, 96).tofile("a.bin")
    follow(refusal("a.bin", "numbers without a header", "384"))
    same("x.npy", np.tile(X, 96))


@pytest.mark.parametrize("name", ["a.bin", "a.npy", "a.safetensors", "a.parquet", "a.fbin"])
def test_pickles_by_any_name(name):
    torch.save({"x": torch.eye(4)}, name)
    refusal(name, "as torch saves it, a pickle", "'Other files' in docs/formats.md")
    with open(name, "wb") as file:
        pickle.dump(X, file)
    refusal(name, "got a pickle, which is never loaded", "'Other files' in docs/formats.md")


@pytest.mark.parametrize("suffix", [".npy", ".fbin", ".safetensors", ".parquet", ".arrow", ".npz"])
def test_what_was_not_downloaded(tmp_path, suffix):
    """Pointers of Git LFS, as `git clone` leaves them, and pages of errors."""
    path = tmp_path / f"a{suffix}"
    path.write_text(
        "version https://git-lfs.github.com/spec/v1\n"
        "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
    )
    refusal(path, "a Git LFS pointer", "`git lfs pull`")
    path.write_text("<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n" * 9)
    refusal(path, "a page in place of a download")


def test_feather_version_1(tmp_path):
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(60) + b"FEA1")
    refusal("a.feather", "Feather version 1", "read_feather")


class Keys(pe.KmsClient):
    """Keys that are not kept anywhere."""

    def wrap_key(self, key_bytes, master_key_identifier):
        return master_key_identifier + key_bytes.hex()

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return bytes.fromhex(wrapped_key.removeprefix(master_key_identifier))


@pytest.mark.parametrize("plain", [True, False])
def test_encrypted_parquet(plain):
    factory, kms = pe.CryptoFactory(lambda _: Keys()), pe.KmsConnectionConfig()
    keys = pe.EncryptionConfiguration(
        "f", column_keys={"c": ["x.list.element"]}, plaintext_footer=plain
    )
    properties = factory.file_encryption_properties(kms, keys)
    table = pa.table({"x": X.tolist()})
    with pq.ParquetWriter("a.parquet", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    refusal("a.parquet", "encrypted", "decryption_properties=")
    decrypted = pq.read_table(
        "a.parquet", decryption_properties=factory.file_decryption_properties(kms)
    )
    assert decrypted == table


FIELDS = np.zeros(20, [("id", "i8"), ("v", "f4", (4,))])
FIELDS["v"] = X


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (FIELDS, X),
        (np.ascontiguousarray(X).view("f4,f4,f4,f4")[:, 0], X),
        (np.packbits(np.tile(BITS, 2).astype(bool), axis=1), np.tile(BITS, 2) * 2 - 1),
        ((X * 40).astype(np.int64), (X * 40).astype(np.int64).astype(np.float32)),
        (X > 0, BITS),
        (X[:, :2] + 1j * X[:, 2:], X),
        (X.astype(np.longdouble), X),
    ],
)
def test_what_a_message_says_of_a_dtype_works(array, expected):
    np.save("a.npy", array)
    text = refusal("a.npy", "dtype")
    x, code = np.load("a.npy"), text.rpartition("; if x has its vectors, save ")[2]
    if "recfunctions" in code:
        import numpy.lib.recfunctions as recfunctions

        code = code.replace("numpy.lib.recfunctions", "recfunctions")
        made = eval(code, {"recfunctions": recfunctions, "x": x})
    else:
        made = eval(code)
    same(made, expected)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_dtypes_of_ml_dtypes(name):
    np.save("a.npy", X.astype(getattr(ml_dtypes, name)))
    text = refusal("a.npy", "of ml_dtypes")
    x = np.load("a.npy")
    made = eval(text.rpartition("; if x has its vectors, save ")[2], {**globals(), **locals()})
    same(made, X.astype(getattr(ml_dtypes, name)).astype(np.float32))


def test_messages_are_short():
    """Of columns, and of names of any length."""
    columns = {f"{'c' * 200}{n}": pa.array([{"a" * 90: 1}] * 3) for n in range(90)}
    pq.write_table(pa.table(columns), "a.parquet")
    text = refusal("a.parquet", "got 0 vector columns", "and 8")
    assert len(text) < 500
    with pytest.raises(InputError) as error:
        load_embeddings("a.parquet", x_column="w" * 9000)
    assert len(str(error.value)) < 500
    assert str(error.value).endswith("more")
    assert len(str(InputError(["x" * 10] * 1000))) < 500


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_packed_bits_of_int8(suffix):
    """As ``quantize_embeddings(rows, "binary")`` of sentence-transformers packs them."""
    rows = np.random.default_rng(1).standard_normal((300, 64))
    x = (np.packbits(rows > 0).reshape(300, -1) - 128).astype(np.int8)
    if suffix == ".npy":
        np.save("a.npy", x)
    else:
        pq.write_table(pa.table({"v": list(x)}), "a.parquet")
    with pytest.raises(InputError, match="x: got int8 that look like packed bits") as error:
        load_embeddings(f"a{suffix}")
    same(eval(re.search("np.unpackbits.* - 1", str(error.value))[0]), np.sign(rows))
    same(x.astype(np.float32), x.astype(np.float32))
    same((rows * 30).clip(-128, 127).astype(np.int8), (rows * 30).clip(-128, 127).astype(np.int8))
