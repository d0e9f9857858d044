"""``inspect``: prints what a checkpoint holds, and verifies it."""

import argparse
from textwrap import indent
from typing import Any

import numpy as np
import yaml

from ppo_mask.checkpoints import Checkpoint
from ppo_mask.checkpoints._runs import LATEST, find_run
from ppo_mask.runner.commands._options import add_command, add_folder


def add_inspect(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = add_command(commands, "inspect", _run, "print what a checkpoint holds and verify it")
    help = "a checkpoint, a run's name or folder, or a URL of one (default: latest)"
    parser.add_argument("run", nargs="?", default=LATEST, metavar="RUN", help=help)
    add_folder(parser)


def _run(options: argparse.Namespace) -> int:
    run_dir, step = find_run(options.run, options.checkpoint_dir)
    print("\n".join(report(run_dir.checkpoint(step))))
    return 0


def report(checkpoint: Checkpoint) -> list[str]:
    """Describes a checkpoint line by line, after verifying the checksum of every array."""
    description, arrays = checkpoint.about, checkpoint.arrays()
    score = description.get("score")
    by = " of an evaluation" if description.get("evaluated") else ""
    facts = {
        "checkpoint": str(checkpoint.path),
        "update": f"{description['update']:,}",
        "steps": f"{description['env_steps']:,}",
        "score": "none" if score is None else f"{score:.4g} (mean episode return{by})",
        "device": description["device"],
        "versions": ", ".join(f"{name} {x}" for name, x in description["versions"].items()),
    }
    lines = [f"{name:11}{text}" for name, text in facts.items()]
    for name, key in (("architecture", "architecture"), ("settings", "config")):
        text = yaml.safe_dump(description[key], sort_keys=False)
        lines += ["", name, *indent(text, "  ").splitlines()]
    lines += ["", "arrays", *_groups(description["arrays"])]
    size = sum(x.nbytes for x in arrays.values())
    lines += ["", f"verified: {len(arrays)} arrays, {size / 1e6:.1f} MB, all as they were saved"]
    # Only the network must be finite: maxima of metrics, for example, begin at minus infinity.
    model = {name: x for name, x in arrays.items() if name.startswith("model.")}
    if broken := [n for n, x in model.items() if x.dtype.kind == "f" and not np.isfinite(x).all()]:
        lines.append(f"WARNING: not finite: {', '.join(broken)}")
    return lines


def _groups(described: dict[str, dict[str, Any]]) -> list[str]:
    """Lists each array of the network, and summarizes the other arrays by group."""
    lines: list[str] = []
    others: dict[str, list[int]] = {}
    for name, each in described.items():
        size = int(np.prod(each["shape"]))
        if name.startswith("model."):
            lines.append(f"  {name}: {each['dtype']}{each['shape']}")
        else:
            group = ".".join(name.split(".")[:2])
            others.setdefault(group, []).append(size)
    for group, sizes in others.items():
        lines.append(f"  {group}: {len(sizes)} arrays, {sum(sizes):,} numbers")
    return lines
