"""Sends log lines and checkpoints to Weights & Biases, an optional extra.

W&B's history is append-only. A resumed run compares W&B's history with the run's own log, and
resends the rows that W&B lost in a kill. If W&B has rows that the run has dropped, the whole
history goes to a new W&B run: only few accounts may rewind one.
"""

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, final

from ppo_mask.callbacks._json_lines import read_rows
from ppo_mask.checkpoints import RunDir
from ppo_mask.checkpoints._files import write_whole
from ppo_mask.errors import RunError, warn
from ppo_mask.training import Callback, LogRecord, Progress, Run, TrainState

_ID = "wandb.json"


def log_in() -> Any:
    """Logs in to W&B before a run begins; on a terminal, W&B may ask for a key.

    Returns:
        The package.

    Raises:
        RunError: the package or an account is missing.
    """
    try:
        import wandb
    except ImportError as error:
        raise RunError(
            "--wandb needs the package wandb: pip install 'ppo-mask[wandb]', or leave --wandb out"
        ) from error
    try:
        wandb.login()
    except wandb.Error as error:
        raise RunError(f"--wandb: {error} (WANDB_MODE=offline does without an account)") from error
    return wandb


@final
class WandB(Callback):
    """Logs a run to W&B; the horizontal axis is environment steps.

    After each new checkpoint, an artifact gets a version that is a run's folder to resume: the
    newest and the best checkpoint, the settings and the log. Older versions are deleted, unless
    somebody has given them an alias. A partial last log line is not sent, since a resumed run may
    complete this line.

    Args:
        run_dir: the run's folder, whose name is also the run's name on W&B. The file ``wandb.json``
            in the folder holds the W&B run's id, so that a resumed run continues the same W&B run.
            The log is that of a :class:`JsonLines`, which must come before this callback.
        project: the project on W&B.
        entity: a user or team on W&B; None for the account's default.
        config: the settings to show on W&B.
        artifact: whether to upload checkpoints.
    """

    def __init__(
        self,
        run_dir: RunDir,
        project: str,
        entity: str | None,
        config: Mapping[str, Any],
        artifact: bool = False,
    ) -> None:
        self._wandb = log_in()
        self._run_dir = run_dir
        self._options = {"project": project, "entity": entity, "name": run_dir.path.name}
        self._config = dict(config)
        self._artifact = artifact
        self._run: Any = None
        self._in_good_order = False
        self._newest: int | None = None

    def on_start(self, run: Run, state: TrainState) -> None:
        """See :class:`Callback`.

        Raises:
            RunError: W&B does not accept the run.
        """
        rows = read_rows(self._run_dir.metrics, run)
        try:
            self._run = self._open(max(rows, default=-1))
        except (self._wandb.Error, ValueError) as error:  # Also of a damaged file, for example.
            raise RunError(f"W&B does not take the run: {error}") from error
        for step in sorted(rows):
            self._log(rows[step], step)

    def on_log(self, run: Run, record: LogRecord) -> None:
        if not record.partial:
            self._log(record.values, record.env_steps)

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        self._send_checkpoints()

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        self._in_good_order = True

    def close(self) -> None:
        if self._run is None:
            return
        if self._in_good_order:
            self._send_checkpoints()
        self._run.finish(exit_code=0 if self._in_good_order else 1)
        self._run = None

    def _open(self, last: int) -> Any:
        """Opens the run on W&B, or a new one if W&B has rows after step ``last``."""
        file = self._run_dir.path / _ID
        if file.exists():
            known = str(json.loads(file.read_bytes())["id"])
            run = self._init(known)
            if run.step <= last + 1:
                return run
            run.finish()
            warn(f"run {known} on W&B has later steps: the whole history goes to a new W&B run")
        new = secrets.token_hex(4)
        write_whole(file, (json.dumps({"id": new}) + "\n").encode())
        return self._init(new)

    def _init(self, run_id: str) -> Any:
        # Not W&B's one global run: a hyperparameter search has several runs in a process.
        return self._wandb.init(
            **self._options,
            id=run_id,
            resume="allow",
            config=self._config,
            dir=str(self._run_dir.path),
            reinit="create_new",
        )

    def _log(self, values: Mapping[str, float], step: int) -> None:
        # W&B collects a step's values until a later step, and takes no more for one that it has.
        if step >= self._run.step:
            self._run.log(dict(values), step=step)

    def _send_checkpoints(self) -> None:
        """Sends the newest and the best checkpoint, unless W&B has them."""
        newest = max(self._run_dir.steps(), default=None) if self._artifact else None
        if newest is None or newest == self._newest:
            return
        best = self._run_dir.best()  # Reads all descriptions, and only a new checkpoint changes it.
        steps = {newest, *([] if best is None else [best.step])}
        artifact = self._wandb.Artifact(f"checkpoint-{self._run.id}", type="model")
        for path in (self._run_dir.checkpoint(step).path for step in steps):
            artifact.add_dir(str(path), name=f"{path.parent.name}/{path.name}")
        for file in (self._run_dir.config, self._run_dir.metrics, self._run_dir.path / _ID):
            artifact.add_file(str(file))
        if self._newest is not None and not self._run.offline:
            name = f"{self._run.entity}/{self._run.project}/{artifact.name}"
            with suppress(self._wandb.Error, OSError):  # The next checkpoint is the next try.
                for version in self._wandb.Api().artifacts("model", name):
                    if not version.aliases:  # The newest has W&B's own, "latest".
                        version.delete()
        self._run.log_artifact(artifact)
        self._newest = newest
