"""``python -m batchplan`` and the ``batchplan`` script."""

from __future__ import annotations

import signal
import warnings


def main() -> None:
    """Run the command line."""
    # A job that is cancelled, in CI or by a scheduler, cleans up as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from batchplan.cli.app import app
        from batchplan.cli.text import show_warning
    except KeyboardInterrupt:  # before there is anything that could report it
        raise SystemExit(130) from None
    warnings.showwarning = show_warning
    app(prog_name="batchplan")


if __name__ == "__main__":
    main()
