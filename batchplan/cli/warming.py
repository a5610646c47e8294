"""The command `warmup`: compile all kernels before the first plan."""

from batchplan.cli.grouping import grouped
from batchplan.cli.options import QUIET, VERBOSE


@grouped
def warmup(quiet: bool = QUIET, verbose: bool = VERBOSE) -> None:
    """Compile all kernels, once for an installation.

    They are kept next to the package, else in ~/.cache/batchplan, or in the folder that
    NUMBA_CACHE_DIR names. All users share those that root compiles.

    \b
    Example:
      batchplan warmup
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from batchplan.cli.console import COMPILE, Watch
    from batchplan.runtime import Runtime

    watch = Watch(quiet=quiet, verbose=verbose)
    with watch.watching(), TemporaryDirectory() as folder:
        from batchplan.warmup import runs

        works = runs(Path(folder), Runtime("cpu"))
        shown = Runtime(observer=watch)
        with shown.stage(COMPILE, len(works)) as advance:
            for run in works:
                run()
                advance(1)
    said = f"{watch.compiled} compiled" if watch.compiled else "all were compiled"
    watch.summarize([("kernels", said), watch.timing()])
