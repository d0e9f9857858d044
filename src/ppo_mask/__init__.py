"""Building blocks for PPO with action masks on JAX and Equinox.

Shapes and dtypes of every public function are checked at trace time by jaxtyping and beartype: the
import hook below puts the check on all of the package, once.
"""

from ppo_mask._typecheck import check_types as _check_types

_check_types("ppo_mask")
