"""The folders of what is planned: made, or the one that is resumed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from ppo_mask.checkpoints import RunFolder, copy_run, create_run_folders
from ppo_mask.devices.processes import is_first, text_from_first, wait_for_all
from ppo_mask.runner._plan import Plan, settings_to_store
from ppo_mask.runner._settings import RunConfig

Environment = TypeVar("Environment")


def seed_configs(config: RunConfig[Environment]) -> list[RunConfig[Environment]]:
    """The settings of each run of ``--num-seeds``: their seeds count up from ``--seed``."""
    first = config.training.seed
    return [
        dataclasses.replace(config, training=dataclasses.replace(config.training, seed=seed))
        for seed in range(first, first + config.run.num_seeds)
    ]


def open_folders(
    plan: Plan[Environment], configs: Sequence[RunConfig[Environment]]
) -> list[RunFolder]:
    """Makes the folders of new runs, or rewinds the one that is resumed; writes their settings.

    Args:
        plan: what to do.
        configs: of each run.

    Returns:
        A folder for each run; all processes must ask, and get the same.

    Raises:
        RunError: a folder cannot be made, or the storage cannot be written to.
    """
    run, storage = plan.config.run, plan.storage

    def create() -> str:
        suffixes = [run.run_suffix]
        if len(configs) > 1:
            parts = [(run.run_suffix, f"seed{config.training.seed}") for config in configs]
            suffixes = ["-".join(filter(None, each)) for each in parts]
        made = create_run_folders(storage.folder, storage.runs(), run.run_name, suffixes)
        return "\0".join(str(folder.path) for folder in made)

    if plan.folder is None:
        paths = text_from_first(create, "make the run's folder").split("\0")
        folders = [RunFolder(Path(path)) for path in paths]
    else:
        old, copy = plan.folder, plan.copy
        wait_for_all("restored")
        if copy is not None:
            text_from_first(lambda: str(copy_run(old, plan.update, copy).path), "copy the run")
        elif is_first():
            storage.rewind(old, plan.update)
        folders = [old if copy is None else RunFolder(copy)]
    if is_first():
        for config, folder in zip(configs, folders, strict=True):
            folder.write_config(settings_to_store(config))
    if plan.folder is None or plan.copy is not None:
        storage.claim(folders)
    return folders
