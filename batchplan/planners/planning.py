"""Runs a planner on embeddings, and makes the plan of its draft."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from batchplan.errors import InputError, OptionError
from batchplan.keywords import PlannerKeywords
from batchplan.options import check_names, with_options
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.options import PlannerOptions
from batchplan.planners.hardneg import HardnegOptions
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.table import PLANNERS
from batchplan.runtime import Observer, Runtime
from batchplan.text import check_urls, meant

if TYPE_CHECKING:
    from batchplan.data import Data
    from batchplan.plans import Negatives, Plan


@with_options(PartitionOptions, checked=False)
def plan(
    x: Any,
    y: Any = None,
    *,
    planner: str | None = None,
    negatives: Any = None,
    model: Any = None,
    seed: int = 0,
    device: str = "auto",
    memory: int | str | None = None,
    observer: Observer | None = None,
    **options: Unpack[PlannerKeywords],
) -> Plan:
    """Plan the batches of an epoch.

    Args:
        x: (N, d) float16, bfloat16, float32 or int8: an array, a tensor or a column, as
            `Embeddings.from_arrays` takes; or `Embeddings`, as `load_embeddings` reads them; or
            `Candidates`, mined lists. With ``model``, a table of texts.
        y: the other side; None if there is only one matrix.
        planner: a name in `PLANNERS`. Without one, the planner and its options are chosen by the
            rules of docs/planners.md#plan, and the reasons are reported to the observer.
        negatives: mined negatives of each row: (N, k, d), k arrays (N, d), or N arrays (k_i, d);
            see `Embeddings.from_arrays`.
        model: plans a table of texts from the token vectors of this model; ``x`` and ``model`` are
            as `batchplan.token_embeddings` takes them.
        seed, device, memory, observer: see `Runtime`.
        options: of the planner, as docs/cli.md lists them; `help` shows the options of partition.

    Raises:
        InputError: an unknown planner or option, options that do not fit the data, or arrays that
            `Embeddings.from_arrays` refuses.
        ResourceError: not enough memory, or no such device.
    """
    settings = _settings(planner or "partition", options)
    runtime = Runtime.of(device, memory, seed, observer)
    if settings.makes_table():
        raise InputError(
            f"{planner}: makes a table of negatives; pass as_batches=True for a plan, or call "
            "batchplan.mine_negatives for the table"
        )
    if model is not None:
        from batchplan.embedding import token_embeddings

        x = token_embeddings(model, x)
    embeddings = _data(x, y, negatives)
    if planner is None:
        from batchplan.planners.choice import choose

        planner, settings = choose(embeddings, options, runtime)
    return typing.cast("Plan", run_planner(planner, embeddings, settings, runtime))


@with_options(HardnegOptions, checked=False)
def mine_negatives(
    x: Any,
    y: Any = None,
    *,
    planner: str | None = None,
    seed: int = 0,
    device: str = "auto",
    memory: int | str | None = None,
    observer: Observer | None = None,
    **options: Unpack[PlannerKeywords],
) -> Negatives:
    """Mine a table of negatives with ``hardneg`` (the default) or ``scns``.

    The arguments are as for `plan`.

    Raises:
        InputError: as `plan`; the planner, or its options, make a plan of batches.
        ResourceError: as `plan`.
    """
    planner = planner or "hardneg"
    settings = _settings(planner, options)
    runtime = Runtime.of(device, memory, seed, observer)
    if not settings.makes_table():
        raise InputError(
            f"{planner}: makes a plan of batches with these options, expected a table of "
            "negatives; call plan, or use hardneg or scns without as_batches"
        )
    mined = run_planner(planner, _data(x, y, None), settings, runtime)
    return typing.cast("Negatives", mined)


def _settings(planner: str, options: Mapping[str, Any]) -> PlannerOptions:
    """Return the options of a planner, checked."""
    check_urls(planner)
    if planner not in PLANNERS:
        hint = meant(planner, PLANNERS)
        raise OptionError(f"planner: got {planner!r}, expected one of {', '.join(PLANNERS)}{hint}")
    kind = PLANNERS[planner].options
    check_names(options, kind, planner)
    return kind(**options)


def _data(x: Any, y: Any, negatives: Any) -> Data:
    from batchplan.data.candidates import data_of

    for name, side in (("x", x), ("y", y)):
        if isinstance(side, str) and side in PLANNERS:
            raise InputError(
                f"{name}: got the planner {side!r}, expected data; write planner={side!r}"
            )
    return data_of(x, y, negatives)


def run_planner(
    planner: str, embeddings: Data, options: PlannerOptions, runtime: Runtime
) -> Plan | Negatives:
    """`plan` with a dataclass of options and a runtime; raises the same."""
    check_enough(planner, embeddings, options)
    from batchplan.planners.common.finish import finish, finish_table

    if isinstance(options, PartitionOptions):
        from batchplan.planners.choice import settled

        options = settled(embeddings, options, runtime)
    draft = PLANNERS[planner].load()(embeddings, options, runtime)
    if isinstance(draft, Draft):
        return finish(draft, planner, embeddings, options, runtime)
    return finish_table(draft, planner, embeddings, options, runtime)


def check_enough(planner: str, embeddings: Data, options: PlannerOptions) -> None:
    """Require that the planner takes these data, and that the rows are enough for the batches and
    devices."""
    from batchplan.data import Candidates
    from batchplan.plans.steps import check_left

    num_rows, size, devices = embeddings.num_rows, options.batch_size, options.world_size
    if size * devices > num_rows:
        got, mend = f"{size}", "choose smaller batches"
        if devices > 1:
            got += f" x {devices} devices, which is {size * devices} rows per step"
            mend += ", or fewer devices"
        raise InputError(
            f"batch size: got {got}, expected at most the {num_rows} rows of the data; {mend}"
        )
    if options.makes_partition():
        check_left(num_rows % (size * devices), devices, options.tail)
    entry, others = PLANNERS[planner], PLANNERS.items()
    if isinstance(embeddings, Candidates):
        if not entry.lists:
            able = ", ".join(name for name, other in others if other.lists)
            raise InputError(
                f"candidates: {planner} plans from vectors; use {able}, or give embeddings"
            )
    elif embeddings.negatives and not entry.tuples:
        able = ", ".join(name for name, other in others if other.tuples)
        raise InputError(
            f"negatives: got {len(embeddings.negatives)} mined negatives per row, but {planner} "
            f"plans pairs; use {able}, or leave them out (--negatives none)"
        )
