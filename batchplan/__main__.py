"""``python -m batchplan`` and the ``batchplan`` script."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from batchplan.cli.app import app

    app(prog_name="batchplan")


if __name__ == "__main__":
    main()
