"""The keyword arguments of the public functions, for editors and type checkers.

`make docs` generates this file from the dataclasses of options; edit them, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from batchplan.runtime import Observer


class RuntimeKeywords(TypedDict, total=False):
    """How a function runs, see `batchplan.Runtime`."""

    seed: int
    device: str
    memory: int | str | None
    observer: Observer | None


class DataKeywords(RuntimeKeywords, total=False):
    """What the data are, see `batchplan.plan`."""

    negatives: object


class SimilarityKeywords(TypedDict, total=False):
    """The fields of `SimilarityOptions`."""

    similarity: Literal["cosine", "dot"]


class ReferenceKeywords(SimilarityKeywords, total=False):
    """The fields of `ReferenceOptions`."""

    reference: list[str] | None
    reference_pair: list[str] | None


class EvaluationKeywords(ReferenceKeywords, total=False):
    """The fields of `EvaluationOptions`."""

    temperature: float
    random_trials: int
    sample: int | None
    relative_margin: float | None
    absolute_margin: float | None
    max_score: float | None
    guard: bool
    edges: bool


class GroupKeywords(SimilarityKeywords, total=False):
    """The fields of `GroupOptions`."""

    group_column: str | None
    label_table: str | None


class GuardKeywords(ReferenceKeywords, GroupKeywords, total=False):
    """The fields of `GuardOptions`."""

    relative_margin: float | None
    absolute_margin: float | None
    max_score: float | None
    guard_penalty: float | None
    guard: bool


class RefineKeywords(GuardKeywords, total=False):
    """The fields of `RefineOptions`."""

    passes: int
    temperature: float
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
    normalize: bool
    batch_size: int
    shard_rows: int


class PlannerKeywords(SimilarityKeywords, DataKeywords, total=False):
    """The fields of `PlannerOptions`."""

    batch_size: int
    tail: Literal["keep", "drop", "pad"]
    batch_order: Literal["planned", "shuffled"]
    world_size: int
    scope: Literal["device", "global"]


class PassKeywords(SimilarityKeywords, total=False):
    """The fields of `PassOptions`."""

    refine: int
    temperature: float


class PartitionKeywords(GuardKeywords, PassKeywords, PlannerKeywords, total=False):
    """The fields of `PartitionOptions`."""

    neighbors: int
    mega_batches: int | Literal["auto"] | None
    mega_batch_rows: int | None
    resume: str | None
    source_column: str | None
    source_mix: Literal["one", "proportional"]
    ray: str | None


class GcbsKeywords(GuardKeywords, PassKeywords, PlannerKeywords, total=False):
    """The fields of `GcbsOptions`."""

    quantile: float
    neighbors: int | None
    reverse: bool


class GreedyKeywords(PassKeywords, PlannerKeywords, total=False):
    """The fields of `GreedyOptions`."""

    random_fraction: float


class OsgdKeywords(PlannerKeywords, total=False):
    """The fields of `OsgdOptions`."""

    temperature: float
    pool: int
    keep: int
    num_batches: int | None


class OptionalGuardKeywords(GuardKeywords, total=False):
    """The fields of `OptionalGuardOptions`."""


class RandomKeywords(OptionalGuardKeywords, PassKeywords, PlannerKeywords, total=False):
    """The fields of `RandomOptions`."""


class ShuffledKeywords(RandomKeywords, total=False):
    """The fields of `ShuffledOptions`."""

    epoch: int


class B3Keywords(PlannerKeywords, total=False):
    """The fields of `B3Options`."""

    skip_nearest: int
    neighbors: int
    cluster_size: int


class ChainKeywords(GuardKeywords, PassKeywords, PlannerKeywords, total=False):
    """The fields of `ChainOptions`."""

    space_rows: int | None
    hardness: float


class KnnKeywords(PassKeywords, PlannerKeywords, total=False):
    """The fields of `KnnOptions`."""

    neighbors: int


class ClusterKeywords(PassKeywords, PlannerKeywords, total=False):
    """The fields of `ClusterOptions`."""

    iterations: int


class TableKeywords(GroupKeywords, PlannerKeywords, total=False):
    """The fields of `TableOptions`."""

    as_batches: bool


class HardnegKeywords(OptionalGuardKeywords, TableKeywords, total=False):
    """The fields of `HardnegOptions`."""

    per_row: int


class ScnsKeywords(TableKeywords, total=False):
    """The fields of `ScnsOptions`."""

    level: Literal["instance", "class"]
    top_k: int
    scns_temperature: float
    per_row: int
    label_column: str | None
    class_embeddings: str | None
    mixup_beta: float | None


class RwrKeywords(GuardKeywords, PassKeywords, PlannerKeywords, total=False):
    """The fields of `RwrOptions`."""

    candidate_rows: int
    neighbors: int
    walk: Literal["rwr", "rw", "bfs"]
    restart: str
    progress: float
    coverage: Literal["independent", "complete", "partition"]


class AnyPlannerKeywords(TypedDict, total=False):
    """Options of any planner."""

    similarity: Literal["cosine", "dot"]
    batch_size: int
    tail: Literal["keep", "drop", "pad"]
    batch_order: Literal["planned", "shuffled"]
    scope: Literal["device", "global"]
    refine: int
    temperature: float
    group_column: str | None
    label_table: str | None
    reference: list[str] | None
    reference_pair: list[str] | None
    relative_margin: float | None
    absolute_margin: float | None
    max_score: float | None
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
    epoch: int
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
    progress: float
    coverage: Literal["independent", "complete", "partition"]


class EpochKeywords(AnyPlannerKeywords, total=False):
    """The keywords of `EpochPlans`, without those that a trainer knows."""

    embeddings: Literal["fresh", "training"]
    ahead: float | None
    epochs: int | None
    data: str | None
    planned_epochs: int | None
    random_epochs: int | None
    every: int
    keep: int
    seed: int
    timeout: float
    device: str
    memory: int | str | None
