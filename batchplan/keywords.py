"""The keyword arguments of the public functions, for editors and type checkers.

`make docs` generates this file from the dataclasses of options; edit them, not this file.
"""

from collections.abc import Callable
from typing import Literal, TypedDict


class CommonKeywords(TypedDict, total=False):
    """The options that planners, `refine` and `evaluate` share."""

    similarity: Literal["cosine", "dot"]
    temperature: float
    anchor_id: str | None
    positive_id: str | None
    negative_id: list[str] | None
    known: str | None
    label_table: str | None
    reference: list[str] | None
    reference_pair: list[str] | None
    relative_margin: float | None
    absolute_margin: float | None
    max_score: float | None


class EvaluationKeywords(CommonKeywords, total=False):
    """The fields of `EvaluationOptions`."""

    random_trials: int
    sample: int | None
    guard: bool
    edges: bool


class RefineKeywords(CommonKeywords, total=False):
    """The fields of `RefineOptions`."""

    group_column: str | None
    guard_penalty: float | None
    guard: bool
    passes: int
    neighbors: int
    source_column: str | None


class MaterializeKeywords(TypedDict, total=False):
    """The fields of `MaterializeOptions`."""

    format: Literal["parquet", "arrow", "jsonl", "litdata", "mds", "webdataset"]
    layout: Literal["order", "strided", "rank-major", "ranks", "n-tuple", "triplet"] | None
    workers: int
    shard_rows: int
    column: list[str] | None
    shard_order: Literal["lexicographic", "natural"] | None
    id_column: str | None


class EmbedKeywords(TypedDict, total=False):
    """The fields of `EmbedOptions`."""

    columns: str
    id_column: str | None
    shard_order: Literal["lexicographic", "natural"] | None
    prompt: list[str] | None
    prompt_text: list[str] | None
    table: bool
    keep_texts: bool
    normalize: bool
    batch_size: int
    shard_rows: int


class EpochOptionKeywords(CommonKeywords, total=False):
    """Options of any planner for `EpochPlans`."""

    batch_size: int
    tail: Literal["keep", "drop", "pad"]
    batch_order: Literal["planned", "shuffled"]
    scope: Literal["device", "global"]
    refine: int
    group_column: str | None
    guard_penalty: float | None
    guard: bool | None
    neighbors: int | None
    mega_batches: int | Literal["auto"] | None
    mega_batch_rows: int | None
    resume: str | None
    source_column: str | None
    source_mix: Literal["one", "proportional"]
    ray: str | None
    quantile: float
    reverse: bool
    random_fraction: float
    pool: int
    num_batches: int | None
    skip_nearest: int
    cluster_size: int
    space_rows: int | None
    hardness: float
    iterations: int
    as_batches: bool
    per_row: int
    level: Literal["instance", "class"]
    top_k: int
    scns_temperature: float
    label_column: str | None
    class_embeddings: str | None
    mixup_beta: float | None
    candidate_rows: int
    walk: Literal["rwr", "rw", "bfs"]
    restart: str
    coverage: Literal["independent", "complete", "partition"]


class PlannerKeywords(EpochOptionKeywords, total=False):
    """Options of any planner."""

    world_size: int
    keep: int
    epoch: int
    progress: float


class EpochKeywords(EpochOptionKeywords, total=False):
    """The keywords of `EpochPlans`, without those that a trainer knows."""

    embeddings: Literal["fresh", "training"]
    ahead: float | None
    epochs: float | None
    predict: Callable[..., object] | None
    data: str | None
    planned_epochs: int | None
    random_epochs: float | None
    every: int
    keep: int
    seed: int
    timeout: float
    device: str
    memory: int | str | None
