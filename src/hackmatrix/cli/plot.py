"""``plot``: the learning curves of runs."""

import argparse
from pathlib import Path
from typing import Any

from hackmatrix.cli.options import add_command, add_force, add_latest, refuse_existing, write
from hackmatrix.play.curves import PLOTTED, draw, html, read_log
from ppo_mask.checkpoints import LATEST, RunFolder, find_run, local_path
from ppo_mask.errors import RunError


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = add_command(
        commands, "plot", _run, "draw learning curves from the logs of runs", needs_device=False
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="runs' folders or URLs")
    add_latest(parser)
    parser.add_argument(
        "--out",
        default="curves.png",
        metavar="FILE",
        help="what to write: .png, .svg or .html (default: curves.png)",
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        metavar="NAME",
        help=f"metrics of the log (default: {' '.join(PLOTTED)})",
    )
    add_force(parser)


def _run(options: argparse.Namespace) -> int:
    folders = [RunFolder(local_path(run)) for run in options.runs]
    if options.latest:
        folders.append(find_run(LATEST, options.checkpoint_dir)[0])
    if not folders:
        raise RunError("say which runs: their folders, or --latest")
    kind = Path(options.out).suffix.lower()
    if kind not in (".png", ".svg", ".html"):
        raise RunError(f"--out must end in .png, .svg or .html, got {options.out}")
    refuse_existing([options.out], options.force)
    # Of two runs of one name the later would hide the first.
    names = [folder.path.name for folder in folders]
    labels = [str(f.path) if names.count(f.path.name) > 1 else f.path.name for f in folders]
    logs = {label: read_log(f.metrics) for label, f in zip(labels, folders, strict=True)}
    picture = draw(logs, "png" if kind == ".png" else "svg", options.metrics)
    content = html(picture, ", ".join(logs)) if kind == ".html" else picture
    write(options.out, content, options.force)
    return 0
