"""A stand-in for W&B: the part of the package's public API that we use, and a server's memory.

What it does with steps is what the package (0.31) says that it does: a row is sent when a later
step is logged, or at the end; a row of a step that is behind is dropped; a resumed run begins at
the step after its last one.
"""

from pathlib import Path
from typing import Any


class Error(Exception):
    """As ``wandb.Error``."""


class Artifact:
    """As ``wandb.Artifact``."""

    def __init__(self, name: str, type: str) -> None:
        self.name, self.type = name, type
        self.files: dict[str, bytes] = {}
        self.aliases: list[str] = []

    def add_dir(self, local_path: str, name: str | None = None) -> None:
        for path in filter(Path.is_file, Path(local_path).rglob("*")):
            self.files[f"{name}/{path.relative_to(local_path)}"] = path.read_bytes()

    def add_file(self, local_path: str) -> None:
        self.files[Path(local_path).name] = Path(local_path).read_bytes()

    def download(self, root: str) -> str:
        for name, content in self.files.items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return root

    def delete(self) -> None:
        assert self.aliases == []
        self.files.clear()


class Run:
    """As ``wandb.Run``."""

    def __init__(self, server: "Server", id: str) -> None:
        self.id = id
        self.entity, self.project, self.offline = "us", server.inits[-1]["project"], False
        self._server = server
        self._rows = server.history.setdefault(id, {})
        self.step = max(self._rows, default=-1) + 1
        self._row: dict[str, float] = {}

    def log(self, data: dict[str, float], step: int) -> None:
        if step < self.step:
            self._server.dropped.append((self.id, step))
            return
        if step > self.step:
            self._send()
        self.step = step
        self._row |= data

    def _send(self) -> None:
        if self._row:
            self._rows[self.step], self._row = self._row, {}

    def log_artifact(self, artifact: Artifact) -> None:
        for other in self._server.versions(artifact.name):
            other.aliases = [x for x in other.aliases if x != "latest"]
        artifact.aliases = ["latest"]
        self._server.artifacts.append(artifact)

    def finish(self, exit_code: int = 0) -> None:
        self._send()
        self._server.finished.append((self.id, exit_code))


class Api:
    """As ``wandb.Api``."""

    def __init__(self, server: "Server") -> None:
        self._server = server

    def artifacts(self, type_name: str, name: str) -> list[Artifact]:
        return [x for x in self._server.versions(name.split("/")[2]) if x.type == type_name]


class Server:
    """As the module ``wandb``, with what a server would remember."""

    Error = Error
    Artifact = Artifact

    def __init__(self) -> None:
        self.lacks = ""
        self.history: dict[str, dict[int, dict[str, float]]] = {}
        self.dropped: list[tuple[str, int]] = []
        self.artifacts: list[Artifact] = []
        self.finished: list[tuple[str, int]] = []
        self.inits: list[dict[str, Any]] = []

    def Api(self) -> Api:
        return Api(self)

    def versions(self, name: str) -> list[Artifact]:
        """The versions of an artifact that have not been deleted."""
        return [x for x in self.artifacts if x.name == name and x.files]

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
        id: str,
        resume: str,
    ) -> Run:
        self.inits.append({"project": project, "entity": entity, "name": name, "config": config})
        if self.lacks == "permission":
            raise Error("permission denied")
        assert (reinit, resume, Path(dir).is_dir()) == ("create_new", "allow", True)
        return Run(self, id)
