"""How many minibatches and epochs suit a batch.

Larger batches want more minibatches, so that the gradient steps stay as small as they were, and
fewer epochs, so that the data is not worn out by the many more steps.
"""

from typing import NamedTuple

REFERENCE_BATCH = 32_768
REFERENCE_MINIBATCHES = 4
REFERENCE_EPOCHS = 4
_MAX_MINIBATCHES = 64
_MIN_EPOCHS = 2


class Scaling(NamedTuple):
    """What one update does with its batch.

    Attributes:
        num_minibatches: parts that the batch is cut into.
        update_epochs: times that the batch is gone through.
    """

    num_minibatches: int
    update_epochs: int


def scale(
    num_envs: int,
    num_steps: int,
    num_minibatches: int | None = None,
    update_epochs: int | None = None,
) -> Scaling:
    """Fills in what is None.

    With a batch of several times :data:`REFERENCE_BATCH` and neither number given, minibatches grow
    and epochs shrink with it. Giving either number is taken as knowing better: the other one is
    then the reference's.
    """
    factor = num_envs * num_steps // REFERENCE_BATCH
    if factor > 1 and num_minibatches is None and update_epochs is None:
        return Scaling(
            min(REFERENCE_MINIBATCHES * factor, _MAX_MINIBATCHES),
            max(_MIN_EPOCHS, REFERENCE_EPOCHS // factor),
        )
    return Scaling(
        REFERENCE_MINIBATCHES if num_minibatches is None else num_minibatches,
        REFERENCE_EPOCHS if update_epochs is None else update_epochs,
    )
