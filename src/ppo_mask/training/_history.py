"""The log lines of a run, kept in memory."""

from typing import Any, final

import numpy as np
import numpy.typing as npt

from ppo_mask.training._callback import Callback, LogRecord, Run


@final
class History(Callback):
    """Keeps a run's log lines, for programs that look at them in Python.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> trainer = pm.Trainer(env, pm.PPOConfig(num_envs=16, num_steps=32))
        >>> model = pm.MLPActorCritic.for_env(env, key=jax.random.key(0))
        >>> history = pm.History()
        >>> state = trainer.init(model, jax.random.key(1))
        >>> state = trainer.train(state, 2 * 16 * 32, callbacks=[history], log_interval=1)
        >>> history.steps.tolist()
        [512, 1024]
        >>> history["train/entropy"].shape
        (2,)

    Attributes:
        records: the log lines, in order.
    """

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def on_log(self, run: Run, record: LogRecord) -> None:
        """See :class:`Callback`."""
        self.records.append(record)

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """The environment steps done at each log line."""
        return np.array([record.env_steps for record in self.records], np.int64)

    @property
    def names(self) -> list[str]:
        """The metrics that there are, in the order in which they came."""
        return list(dict.fromkeys(name for record in self.records for name in record.values))

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        """A metric at each log line; NaN where a line does not have it.

        Raises:
            KeyError: no line has it; the message names those that there are.
        """
        if name not in self.names:
            raise KeyError(f"there is no metric {name}; there are {', '.join(self.names)}")
        return np.array([record.values.get(name, np.nan) for record in self.records], np.float64)

    def __repr__(self) -> str:
        last: Any = self.records[-1].env_steps if self.records else 0
        return f"History({len(self.records)} log lines, {last:,} steps)"
