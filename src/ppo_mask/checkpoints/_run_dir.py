"""The folder of one run: its settings, its logs and its checkpoints."""

import math
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from ppo_mask.checkpoints._checkpoint import (
    Checkpoint,
    clean_checkpoints,
    delete_checkpoint,
    steps_in,
)
from ppo_mask.checkpoints._files import check_path, using_disk, write_whole
from ppo_mask.checkpoints._lock import LOCK
from ppo_mask.checkpoints._mirror import CHECKPOINTS, CONFIG, Mirror
from ppo_mask.devices.processes import is_process_0
from ppo_mask.errors import RunError, warn

_KEPT = 3  # newest checkpoints, besides the best


class RunDir:
    """The folder of one run, and its copy in a bucket if it has one.

    Each checkpoint's description is read once.

    Args:
        path: the folder; the first save makes it.
        mirror: the copy in a bucket; None for none.

    Attributes:
        path: the folder, as an absolute path.
        mirror: the copy in a bucket, or None.
        config: the file of the settings, with all defaults filled in.
        metrics: the log as JSON lines.
        text_log: the log as the console showed it.
        tensorboard: the folder of TensorBoard's event files.
        profile: the folder of the profiler's traces.

    Example:
        >>> import tempfile
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> trainer = pm.Trainer(env, pm.PPO(num_envs=4, num_steps=8))
        >>> state = trainer.init(pm.network_for(env, key=jax.random.key(0)), jax.random.key(1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saved = pm.checkpoints.RunDir(folder).save(0, state)
        ...     state = saved.restore(like=state)
    """

    def __init__(self, path: str | Path, mirror: Mirror | None = None) -> None:
        self.path = Path(path).absolute()
        check_path(self.path)
        self.mirror = mirror
        self.config, self.metrics = self.path / CONFIG, self.path / "metrics.jsonl"
        self.text_log = self.path / "log.txt"
        self.tensorboard, self.profile = self.path / "tensorboard", self.path / "profile"
        self._read: dict[int, Checkpoint] = {}

    def __repr__(self) -> str:
        return f"RunDir({self.place})"

    @property
    def place(self) -> str:
        """The URL of the copy in a bucket or, without one, the folder's path."""
        return str(self.path) if self.mirror is None else self.mirror.url

    @property
    def is_empty(self) -> bool:
        """Whether the run ended before its first checkpoint, or before it wrote anything."""
        if self.config.is_file() or (self.path / LOCK).is_file():
            found = (self.path / CHECKPOINTS).glob("*")
            return not any(path.name.isdecimal() for path in found)
        return self.path.is_dir() and not any(self.path.iterdir())

    def steps(self) -> list[int]:
        """Lists the steps of all complete checkpoints, in order."""
        return steps_in(self.path / CHECKPOINTS)

    def checkpoint(self, step: int | None = None) -> Checkpoint:
        """Returns the checkpoint of a step, or the newest one.

        Raises:
            RunError: there is no such checkpoint, or its description is damaged.
        """
        if step is None:
            step = max(self.steps(), default=None)
        if step is None:
            raise RunError(f"run {self.path} has no complete checkpoint")
        if step not in self._read:
            self._read[step] = Checkpoint.read(self._path_of(step))
        return self._read[step]

    def best(self) -> Checkpoint | None:
        """Returns the checkpoint with the best score, or None if there is no score.

        A score from an evaluation beats any score from training, since the two are not comparable.
        Of checkpoints with equal scores, the newest is the best.
        """
        ranks = self._ranks()
        step = max(ranks, key=lambda step: (ranks[step], step), default=None)
        return None if step is None else self.checkpoint(step)

    def would_be_best(self, score: float, evaluated: bool) -> bool:
        """Whether a checkpoint with this score would be the best; see :meth:`save`."""
        rank = _rank(score, evaluated)
        return rank is not None and all(rank >= other for other in self._ranks().values())

    def what_is_kept(self) -> str:
        """Names the newest checkpoint, for the end of an error message."""
        if not is_process_0():
            return "process 0 says what the last good checkpoint is"
        if not (steps := self.steps()):
            return "nothing had been saved yet (--save-interval saves every so many updates)"
        copied = "" if self.mirror is None else f", and --resume {self.place} copies it"
        return f"the last good checkpoint is {self._path_of(steps[-1])}{copied}"

    def save(
        self,
        step: int,
        state: Any,
        about: Mapping[str, Any] | None = None,
        score: float | None = None,
        evaluated: bool = False,
    ) -> Checkpoint:
        """Writes a checkpoint, then deletes all but the newest three and the best.

        If several processes share the state, all of them must call this method; process 0 writes.

        Args:
            step: the checkpoint's number, which must be new.
            state: any tree; only its arrays are saved.
            about: anything JSON can hold.
            score: how good the state is; the checkpoint with the highest score is kept.
            evaluated: whether the score comes from an evaluation of exactly this state.

        Raises:
            RunError: the checkpoint cannot be written; older ones stay as they are.
        """
        # JSON has no infinity.
        scored = {"score": score if _rank(score, evaluated) else None, "evaluated": evaluated}
        written = Checkpoint.write(self._path_of(step), state, {**(about or {}), **scored})
        self._read[step] = written
        if is_process_0():
            self._prune()
        return written

    def pull(self) -> "RunDir":
        """Brings the folder up to date with its copy in a bucket, if there is one; returns itself.

        Raises:
            RunError: the bucket cannot be reached, or has no such run.
        """
        if self.mirror is not None:
            self.mirror.pull(self.path)
        return self

    def push(self) -> None:
        """Brings the copy in a bucket up to date, if there is one.

        Raises:
            RunError: the bucket cannot be reached, or another process has taken the run over.
        """
        if self.mirror is not None:
            self.mirror.push(self.path)

    def clean(self) -> None:
        """Deletes checkpoints that a killed process left partly written or partly deleted."""
        clean_checkpoints(self.path / CHECKPOINTS)

    def discard_after(self, step: int) -> None:
        """Deletes all checkpoints of later steps, the latest first.

        Raises:
            RunError: a checkpoint cannot be deleted.
        """
        with using_disk(self.path):
            for later in reversed(self.steps()):
                if later > step:
                    delete_checkpoint(self._path_of(later))

    def write_config(self, content: dict[str, Any]) -> None:
        """Writes or replaces the settings.

        Raises:
            RunError: the file cannot be written.
        """
        write_whole(self.config, yaml.safe_dump(content, sort_keys=False).encode())

    def fork(self, step: int, copy: "RunDir") -> None:
        """Copies the run up to one of its checkpoints; a kill leaves a whole copy or no copy.

        The copy leaves out the profiler's traces and the W&B run. Resuming the copy drops what the
        logs have of later steps.

        Args:
            step: the step of the last checkpoint to copy.
            copy: the copy, whose folder must not exist yet.

        Raises:
            RunError: the copy cannot be written.
        """
        left_out = shutil.ignore_patterns(".*", "wandb*", self.profile.name)
        parent = copy.path.parent
        with using_disk(copy.path):
            parent.mkdir(parents=True, exist_ok=True)
            # A search for runs looks less deep, and does not find an incomplete copy.
            with TemporaryDirectory(dir=parent, prefix=".fork") as scratch:
                fresh = RunDir(Path(scratch, copy.path.name))
                shutil.copytree(self.path, fresh.path, ignore=left_out)
                fresh.discard_after(step)
                fresh.path.rename(copy.path)

    def _path_of(self, step: int) -> Path:
        return self.path / CHECKPOINTS / str(step)

    def _ranks(self) -> dict[int, tuple[bool, float]]:
        """Returns the rank of each checkpoint with a score, by step; the highest is the best."""
        ranks: dict[int, tuple[bool, float]] = {}
        for step in self.steps():
            with suppress(RunError):  # A damaged checkpoint is never the best.
                about = self.checkpoint(step).about
                rank = _rank(about.get("score"), about.get("evaluated", False))
                ranks |= {} if rank is None else {step: rank}
        return ranks

    def _prune(self) -> None:
        best = self.best()
        try:
            for step in self.steps()[:-_KEPT]:
                if best is None or step != best.step:
                    delete_checkpoint(self._path_of(step))
        except OSError as error:
            warn(f"cannot delete older checkpoints of {self.path}: {error.strerror}")


def _rank(score: Any, evaluated: bool) -> tuple[bool, float] | None:
    is_number = isinstance(score, float | int) and math.isfinite(score)
    return (evaluated, score) if is_number else None
