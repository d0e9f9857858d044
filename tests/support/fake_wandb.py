"""A stand-in for W&B: the part of the package's public API that we use, and a server's memory.

What it does with steps is what the package (0.31) says that it does: a row of a step that is behind
is dropped; a resumed run begins at the step after its last one; ``resume_from`` drops what follows.
"""

from pathlib import Path
from typing import Any


class Error(Exception):
    """As ``wandb.Error``."""


class Artifact:
    """As ``wandb.Artifact``."""

    def __init__(self, name: str, type: str) -> None:
        self.name, self.type = name, type
        self.files: list[str] = []

    def add_dir(self, local_path: str, name: str | None = None) -> None:
        assert Path(local_path).is_dir()
        self.files.append(name or ".")

    def add_file(self, local_path: str) -> None:
        assert Path(local_path).is_file()
        self.files.append(Path(local_path).name)


class Run:
    """As ``wandb.Run``."""

    def __init__(self, server: "Server", id: str) -> None:
        self.id = id
        self.summary = server.summaries.setdefault(id, {})
        self._server = server
        self._rows = server.history.setdefault(id, {})
        self.step = max(self._rows, default=-1) + 1

    def log(self, data: dict[str, float], step: int, commit: bool) -> None:
        assert commit
        if step < self.step:
            self._server.dropped.append((self.id, step))
            return
        self._rows[step] = dict(data)
        self.step = step + 1

    def log_artifact(self, artifact: Artifact, aliases: list[str]) -> None:
        self._server.artifacts.append((artifact.name, artifact.type, artifact.files, aliases))

    def finish(self, exit_code: int = 0) -> None:
        self._server.finished.append((self.id, exit_code))


class Server:
    """As the module ``wandb``, with what a server would remember."""

    Error = Error
    Artifact = Artifact

    def __init__(self) -> None:
        self.winds_back = True
        self.lacks = ""
        self.history: dict[str, dict[int, dict[str, float]]] = {}
        self.summaries: dict[str, dict[str, float]] = {}
        self.dropped: list[tuple[str, int]] = []
        self.artifacts: list[tuple[str, str, list[str], list[str]]] = []
        self.finished: list[tuple[str, int]] = []
        self.inits: list[dict[str, Any]] = []

    def login(self) -> bool:
        if self.lacks == "account":
            raise Error("No API key configured.")
        return True

    def init(
        self,
        *,
        project: str,
        entity: str | None,
        name: str,
        config: dict[str, Any],
        dir: str,
        reinit: str,
        id: str | None = None,
        resume: str | None = None,
        resume_from: str | None = None,
    ) -> Run:
        self.inits.append({"project": project, "entity": entity, "name": name, "config": config})
        if self.lacks == "permission":
            raise Error("permission denied")
        assert (reinit, Path(dir).is_dir()) == ("create_new", True)
        if resume_from is None:
            assert resume == "allow"
            assert id is not None
            return Run(self, id)
        assert (id, resume) == (None, None)
        if not self.winds_back:
            raise Error("rewind is not available")
        known, _, step = resume_from.partition("?_step=")
        for later in [s for s in self.history[known] if s > int(step)]:
            del self.history[known][later]
        return Run(self, known)
