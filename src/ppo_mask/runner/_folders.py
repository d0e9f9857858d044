"""Makes the folders of new runs, or takes over the folder of the run to resume."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from ppo_mask.checkpoints import RunFolder, copy_run, create_run_folders, hold
from ppo_mask.devices.processes import broadcast_text_from_0, wait_for_all
from ppo_mask.errors import RunError
from ppo_mask.runner._plan import Plan
from ppo_mask.runner._settings import RunConfig

Environment = TypeVar("Environment")


def open_folders(
    plan: Plan[Environment], configs: Sequence[RunConfig[Environment]], held: ExitStack
) -> list[RunFolder]:
    """Makes the folders of new runs, or rewinds the run to resume, and writes ``config.yaml``.

    All processes must call this function, and all get the same folders. ``held`` holds the locks on
    the runs.
    """
    run, storage = plan.config.run, plan.storage
    begun_before = run.resume is not None and plan.copy is None

    def settle(folders: Sequence[RunFolder]) -> str:
        for config, folder in zip(configs, folders, strict=True):
            folder.write_config(plan.stored(config))
        if begun_before:
            storage.take_over(folders[0])
        else:
            storage.claim(folders)
        return "\0".join(str(folder.path) for folder in folders)

    def create() -> str:
        seeds = [f"seed{config.run.seed}" for config in configs]
        suffixes = seeds if len(seeds) > 1 else [None]
        taken = storage.runs()
        if run.resume is not None:  # A run without a checkpoint reuses its own folder.
            taken.pop(str(run.run_name), None)
        made = create_run_folders(storage.folder, taken, run.run_name, suffixes)
        for folder in made:
            held.enter_context(hold(folder.path))
        return settle(made)

    if plan.folder is None:
        paths = broadcast_text_from_0(create, "make the run's folder")
    else:
        old, copy = plan.folder, plan.copy
        wait_for_all("restored")

        def take_over() -> str:
            if copy is not None:
                copied = copy_run(old, plan.update, copy)
                held.enter_context(hold(copied.path))
                return settle([copied])
            held.enter_context(hold(old.path))
            steps = old.checkpoints.steps()
            if plan.update not in steps or (plan.update != steps[-1] and not run.rewind):
                raise RunError(f"run {old.path} has been trained by another process meanwhile")
            try:
                old.checkpoints.discard_after(plan.update)
            except OSError as error:
                raise RunError(f"cannot rewind {old.path}: {error.strerror}") from error
            return settle([old])

        paths = broadcast_text_from_0(take_over, "take over the run's folder")
    return [RunFolder(Path(path)) for path in paths.split("\0")]
