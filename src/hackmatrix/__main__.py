"""``python -m hackmatrix``: see :mod:`hackmatrix.cli`."""

from hackmatrix.cli import main


def run() -> None:
    """Runs the program ``hackmatrix``."""
    raise SystemExit(main())


if __name__ == "__main__":
    run()
