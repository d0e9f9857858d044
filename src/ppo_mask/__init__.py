"""Building blocks for PPO with action masks on JAX and Equinox.

Shapes and dtypes of every public function are checked at trace time by jaxtyping and beartype: the
import hook below puts the check on all of the package, once.
"""

from jaxtyping import install_import_hook

install_import_hook("ppo_mask", "beartype.beartype")
