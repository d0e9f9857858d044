"""The job shop of JSSEnv (``pip install jssenv``), whose ``reset`` is older than Gymnasium's.

The id is ``benchmarks.job_shop:JobShop-v0``. The return is (23342 - 15 * makespan) / 99.
"""

# The extra ``dev`` does not have JSSEnv.
# pyright: reportMissingImports=false

from pathlib import Path
from typing import Any

import gymnasium
import JSSEnv
from JSSEnv.envs import JssEnv


class JobShop(JssEnv):
    """Taillard's instance ta01: 15 jobs on 15 machines; the shortest makespan is 1231."""

    observation_sets = (("real_obs", None),)  # The jobs; one more action is to wait.

    def __init__(self, instance: str = "ta01") -> None:
        folder = Path(JSSEnv.__file__).parent / "envs" / "instances"
        super().__init__({"instance_path": folder / instance})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        return super().reset(), {}


gymnasium.register("JobShop-v0", JobShop)
