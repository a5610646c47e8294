"""``python -m batchplan`` and the ``batchplan`` script."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    try:
        from batchplan.cli.app import app
    except KeyboardInterrupt:  # before there is anything that could report it
        raise SystemExit(130) from None
    app(prog_name="batchplan")


if __name__ == "__main__":
    main()
