"""What keeps runs: a folder on this machine alone, or a bucket as well."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from ppo_mask.checkpoints._run_folder import RunFolder
from ppo_mask.errors import RunError


class Storage(ABC):
    """What keeps runs. A run is always trained in a folder on this machine.

    Every method that reaches a bucket raises a RunError where that does not work.

    Attributes:
        place: what the user calls it: a path or a URL.
        folder: holds a folder per run, on this machine.
    """

    place: str
    folder: Path

    @abstractmethod
    def runs(self) -> dict[str, str]:
        """The names that are taken, and the path or the URL of each."""

    @abstractmethod
    def newest(self) -> str:
        """The name of the run that was saved last.

        Raises:
            RunError: there is no run with a checkpoint.
        """

    @abstractmethod
    def pull(self, name: str) -> Path:
        """Brings a run's local folder up to date, and returns it.

        Raises:
            RunError: there is no such run, or it is damaged.
        """

    @abstractmethod
    def push(self, folder: RunFolder) -> None:
        """Copies what is new in a run's local folder.

        Raises:
            RunError: another process has written to the copy; nothing of it is overwritten.
        """

    @abstractmethod
    def claim(self, folders: Sequence[RunFolder]) -> None:
        """Takes the names of new runs.

        Raises:
            RunError: that failed; the folders are gone again.
        """

    @abstractmethod
    def rewind(self, folder: RunFolder, step: int) -> None:
        """Deletes the checkpoints after a step.

        Raises:
            RunError: as :meth:`push`.
        """


@final
@dataclass(frozen=True)
class LocalStorage(Storage):
    """A folder on this machine, or one that is mounted: there is no copy to keep up to date."""

    place: str
    folder: Path

    def runs(self) -> dict[str, str]:
        """See :class:`Storage`."""
        return {path.name: str(path) for path in self.folder.glob("[!.]*")}

    def newest(self) -> str:
        """See :class:`Storage`."""
        found: list[tuple[float, str]] = []
        for config in self.folder.glob("*/config.yaml"):
            checkpoints = RunFolder(config.parent).checkpoints
            if (step := checkpoints.newest()) is not None:
                found.append((checkpoints.path(step).stat().st_mtime, config.parent.name))
        if not found:
            raise RunError(f"there is no run with a checkpoint in {self.folder}")
        return max(found)[1]

    def pull(self, name: str) -> Path:
        """See :class:`Storage`."""
        return self.folder / name

    def push(self, folder: RunFolder) -> None:
        """Does nothing."""

    def claim(self, folders: Sequence[RunFolder]) -> None:
        """Does nothing."""

    def rewind(self, folder: RunFolder, step: int) -> None:
        """See :class:`Storage`."""
        folder.checkpoints.discard_after(step)
