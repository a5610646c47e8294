"""Writes vectors with the tools that people use, for `tests.benchmarks.corpus` to read.

    pip install duckdb datasets fastparquet awkward ml_dtypes pandas polars pyarrow pyspark ray \
        safetensors sentence-transformers
    python -m tests.benchmarks.written FOLDER [TOOL...]

A tool that is not installed, or lacks a type, is reported and left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROWS = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
IDS = [f"row {n:03}" for n in range(300)]
INT8 = np.clip(ROWS * 40, -128, 127).astype(np.int8)


def by_numpy(folder: Path) -> None:
    for dtype in ("f2", "<f4", ">f4", "f8", "i1", "u1", "c8", "?"):
        rows = (np.abs(ROWS) * 40 if dtype == "u1" else ROWS).astype(dtype)
        for order in "CF":
            name = f"{dtype.strip('<>?')}-{rows.dtype.byteorder == '>'}-{order}"
            np.save(folder / f"{name}.npy", np.asarray(rows, order=order))
            np.savez(folder / f"{name}.npz", np.asarray(rows, order=order))
            np.savez_compressed(folder / f"{name}-x.npz", x=rows, y=rows[::-1], n=np.arange(300))
    np.save(folder / "fields.npy", np.zeros(300, [("id", "i8"), ("v", "f4", (8,))]))
    rows = np.hstack([np.full((300, 1), 8, "<i4").view("<f4"), ROWS])
    rows.tofile(folder / "a.fvecs")
    for suffix, rows in ((".fbin", ROWS), (".f16bin", ROWS.astype("f2")), (".i8bin", INT8)):
        data = np.array(rows.shape, "<u4").tobytes() + rows.tobytes()
        (folder / f"a{suffix}").write_bytes(data)


def by_ml_dtypes(folder: Path) -> None:
    import ml_dtypes

    for name in ("bfloat16", "float8_e4m3fn"):
        np.save(folder / f"{name}.npy", ROWS.astype(getattr(ml_dtypes, name)))


def by_safetensors(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    for name in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "float8_e4m3fn"):
        rows = torch.from_numpy(ROWS * 40).to(getattr(torch, name))
        save_file({"x": rows}, folder / f"{name}.safetensors")
        save_file(
            {"x": rows, "y": rows.flip(0), "n": rows[0].clone()}, folder / f"{name}-2.safetensors"
        )


def by_pandas(folder: Path) -> None:
    import pandas as pd

    for dtype in ("f2", "f4", "f8", "i1"):
        rows = list((ROWS * 40).astype(dtype))
        for ids in (IDS, range(300), pd.Categorical(IDS), pd.array(range(300), "Int64")):
            frame = pd.DataFrame({"id": ids, "x": rows, "y": rows[::-1]})
            name = f"{dtype}-{frame['id'].dtype!s:.5}"
            frame.to_feather(folder / f"{name}.feather")
            for codec in ("snappy", "zstd", None):
                frame.to_parquet(folder / f"{name}-{codec}.parquet", compression=codec)
            frame.set_index("id").to_parquet(folder / f"{name}-index.parquet")
    pd.DataFrame(np.tile(ROWS, 4), columns=[f"d{n}" for n in range(32)]).to_parquet(
        folder / "wide.parquet"
    )


def by_polars(folder: Path) -> None:
    import polars as pl

    for dtype in (pl.Float32, pl.Float64, pl.Int8):
        for kind in (pl.List(dtype), pl.Array(dtype, 8)):
            for ids in (pl.String, pl.Categorical, pl.Enum(IDS)):
                rows = (ROWS * 40).astype("i1" if dtype == pl.Int8 else "f8").tolist()
                frame = pl.DataFrame(
                    {"id": pl.Series(IDS, dtype=ids), "x": pl.Series(rows, dtype=kind)}
                )
                name = f"{dtype}-{type(kind).__name__}-{ids!s:.4}"
                frame.write_ipc(folder / f"{name}.arrow", compression="uncompressed")
                frame.write_ipc(folder / f"{name}.feather", compression="zstd")
                frame.write_ipc(
                    folder / f"{name}-old.feather", compat_level=pl.CompatLevel.oldest()
                )
                frame.write_ipc_stream(folder / f"{name}-stream.arrow")
                for codec in ("zstd", "snappy", "lz4", "gzip", "uncompressed"):
                    frame.write_parquet(folder / f"{name}-{codec}.parquet", compression=codec)


def by_duckdb(folder: Path) -> None:
    import duckdb

    for kind in ("FLOAT", "DOUBLE", "TINYINT"):
        for size in ("", "8"):
            for codec in ("snappy", "zstd", "gzip", "lz4", "brotli", "uncompressed"):
                name = f"{kind}-{size or 'list'}-{codec}"
                duckdb.sql(
                    f"COPY (SELECT i AS id, [(i * j % 97)::{kind} FOR j IN range(1, 9)]"
                    f"::{kind}[{size}] AS x FROM range(1, 301) t(i)) "
                    f"TO '{folder}/{name}.parquet' (FORMAT parquet, CODEC '{codec}')"
                )


def by_datasets(folder: Path) -> None:
    import datasets

    for dtype in ("float16", "float32", "float64", "int8"):
        kind, rows = datasets.Value(dtype), (ROWS * 40).astype(dtype)
        for name, feature, values in (
            ("list", datasets.List(kind), rows),
            ("fixed", datasets.List(kind, length=8), rows),
            ("array2d", datasets.Array2D((1, 8), dtype), rows[:, None]),
        ):
            features = datasets.Features({"id": datasets.Value("string"), "x": feature})
            data = datasets.Dataset.from_dict({"id": IDS, "x": list(values)}, features)
            data.to_parquet(folder / f"{name}-{dtype}.parquet")
            data.save_to_disk(folder / f"{name}-{dtype}")


def by_fastparquet(folder: Path) -> None:
    import fastparquet
    import pandas as pd

    frame = pd.DataFrame({"id": range(300), "x": ROWS[:, 0], "v": [row.tolist() for row in ROWS]})
    fastparquet.write(str(folder / "json.parquet"), frame, object_encoding="json")
    wide = pd.DataFrame(np.tile(ROWS, 4), columns=[f"d{n}" for n in range(32)])
    for codec in ("SNAPPY", "GZIP", "ZSTD", "UNCOMPRESSED"):
        fastparquet.write(str(folder / f"{codec}.parquet"), wide, compression=codec)


def by_awkward(folder: Path) -> None:
    import awkward as ak

    for dtype in ("f4", "f8", "i1"):
        regular = ak.from_numpy((ROWS * 40).astype(dtype), regulararray=True)
        for name, rows in (("regular", regular), ("ragged", ak.from_regular(regular))):
            table = ak.zip({"id": ak.Array(IDS), "x": rows}, depth_limit=1)
            ak.to_parquet(table, str(folder / f"{name}-{dtype}.parquet"))
            ak.to_feather(table, str(folder / f"{name}-{dtype}.feather"))


def by_spark(folder: Path) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import types as st

    spark = SparkSession.builder.master("local[1]").getOrCreate()
    for kind in (st.FloatType(), st.DoubleType(), st.ByteType()):
        rows = INT8.tolist() if kind == st.ByteType() else ROWS.tolist()
        fields = [st.StructField("id", st.LongType()), st.StructField("x", st.ArrayType(kind))]
        frame = spark.createDataFrame([*enumerate(rows)], st.StructType(fields))
        for codec in ("snappy", "zstd", "gzip", "lz4", "uncompressed"):
            out = folder / f"{kind.simpleString()}-{codec}"
            frame.coalesce(1).write.option("compression", codec).parquet(str(out))
    spark.stop()


def by_ray(folder: Path) -> None:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    for dtype in ("f2", "f4", "f8", "i1"):
        data = ray.data.from_numpy((ROWS * 40).astype(dtype))
        data.write_parquet(str(folder / dtype))
    ray.shutdown()


def by_sentence_transformers(folder: Path) -> None:
    from sentence_transformers.util import quantize_embeddings

    rows = np.tile(ROWS, 8)
    for precision in ("float32", "int8", "uint8", "binary", "ubinary"):
        np.save(folder / f"{precision}.npy", quantize_embeddings(rows, precision))


TOOLS: dict[str, Callable[[Path], None]] = {
    name.removeprefix("by_"): function
    for name, function in list(globals().items())
    if name.startswith("by_")
}


def main() -> None:
    for name in sys.argv[2:] or TOOLS:
        folder, write = Path(sys.argv[1]) / name, TOOLS[name]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            write(folder)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    main()
