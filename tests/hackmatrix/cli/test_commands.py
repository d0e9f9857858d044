"""The commands, in this process; what they do on a terminal is in test_terminal."""

import io
import json
import re
import shutil
from pathlib import Path

import equinox as eqx
import jax
import pytest
import yaml

from games import position, seed_to_play
from hackmatrix import cli, positions
from hackmatrix.cli.play import KEYS, why_not
from hackmatrix.cli.screen import screen
from hackmatrix.networks import player_centered_mlp
from hackmatrix.play.agents import load_agent
from hackmatrix.play.replay import Decision, Frame
from hackmatrix.render import scene
from hackmatrix.rules.rewards import COMPONENTS
from own_process import python
from ppo_mask.checkpoints import RunDir, architecture_of, save_policy
from ppo_mask.checkpoints._runs import open_runs

WATCH = ("watch", "--policy", "fighter", "--seed", "1", "--max-steps")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    """A run with two checkpoints of an untrained network, and a log."""
    network = player_centered_mlp(8, 1, time_aware=True, key=jax.random.key(3))
    folder = RunDir(tmp_path_factory.mktemp("checkpoints") / "first")
    folder.path.mkdir()
    config = {
        "environment": {"undo_depth": 9, "max_steps": 5, "time_aware": True},
        "network": {"hidden_dim": 8, "num_layers": 1},
        "algorithm": {"learning_rate": 0.1},
    }
    folder.config.write_text(yaml.safe_dump(config))
    for update in (3, 7):
        description = {
            "config": config,
            "algorithm": "PPO",
            "architecture": architecture_of(network),
            "versions": {"jax": "0.10"},
            "device": "1 x cpu",
            "update": update,
            "env_steps": 100 * update,
        }
        state = {"model": network, "key": jax.random.key(0)}
        folder.save(update, state, description, score=1.5)
    values = {"train/mean_episode_return": 0.5, "train/entropy": 1.0}
    lines = [json.dumps({"step": 100 * n, "update": n} | values) for n in range(1, 6)]
    folder.metrics.write_text("\n".join([*lines, '{"step": 600, "upd']))
    return folder.path


def command(capsys, *words):
    code = cli.main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_inspect_prints_what_a_checkpoint_holds(capsys, run_folder):
    facts = ["update     7", "steps      700", "score      1.5", "PlayerCentered"]
    facts += ["undo_depth: 9", "actor.0.weight: float32[8, ", "verified: "]
    for target in ([run_folder], ["--checkpoint-dir", run_folder.parent]):
        code, out, _ = command(capsys, "inspect", *target)
        assert code == 0
        assert [fact for fact in facts if fact not in out] == []
        assert "WARNING" not in out
    assert "update     3" in command(capsys, "inspect", run_folder / "checkpoints" / "3")[1]


def test_commands_take_the_url_of_a_run(capsys, run_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = "memory://commands/runs"
    mirror = open_runs(url).run("first").mirror
    assert mirror is not None
    mirror.take_over(Path(shutil.copytree(run_folder, tmp_path / "first")))
    for target in ([f"{url}/first"], ["--checkpoint-dir", url]):
        assert "update     7" in command(capsys, "inspect", *target)[1]
    assert "update     3" in command(capsys, "inspect", f"{url}/first/checkpoints/3")[1]
    assert load_agent(f"{url}/first").name == "first/7"
    for words in (["export", f"{url}/first"], ["plot", f"{url}/first", "--out"]):
        out = tmp_path / ("a.npz" if words[0] == "export" else "a.svg")
        assert command(capsys, *words, out)[0] == 0
        assert out.stat().st_size > 100
    problem = f"error: there is no run {url}/none\n"
    assert command(capsys, "inspect", f"{url}/none") == (2, "", problem)


@pytest.mark.slow
def test_plot_starts_no_device(run_folder, tmp_path):
    words = ("-m", "hackmatrix", "plot", run_folder, "--out", tmp_path / "a.svg")
    python(*words, JAX_PLATFORMS="nonsense")


def test_train_is_the_trainer_under_its_own_name(capsys):
    with pytest.raises(SystemExit) as end:
        command(capsys, "train", "--help")
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: hackmatrix train [flags]")
    for part in ("environment:\n  HackMatrix,", "--undo-depth N", "(default: 0.15)", "mlp|board|"):
        assert part in shown
    problem = "error: unknown flag --num-env; did you mean --num-envs?\n"
    assert command(capsys, "train", "--num-env", "4") == (2, "", problem)
    assert command(capsys, "train", "--undo-depth", "7")[0] == 2  # The game refuses it.


def test_a_saved_policy_plays_like_a_run(capsys, run_folder, tmp_path):
    trained = load_agent(str(run_folder))
    save_policy(trained.model, tmp_path / "mine")
    agent = load_agent(str(tmp_path / "mine"))
    assert agent.name == "mine"
    assert bool(eqx.tree_equal(agent.model, trained.model))
    few = ("--max-steps", "3")
    code, shown, _ = command(capsys, "evaluate", tmp_path / "mine", "--episodes", "2", *few)
    assert (code, "mine" in shown) == (0, True)
    assert command(capsys, "watch", tmp_path / "mine", "--html", tmp_path / "a.html", *few)[0] == 0
    assert command(capsys, "export", tmp_path / "mine", tmp_path / "a.npz")[0] == 0


def test_a_run_plays_as_it_was_trained(run_folder):
    for sample in (False, True):
        agent = load_agent(str(run_folder), sample=sample)
        assert (agent.name, agent.greedy) == ("first/7", not sample)
        env = agent.env
        assert (env.undo_depth, env.max_steps, env.time_aware) == (9, None, True)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("export", "RUN", "FILE"), "policy.npz"),
        (("plot", "RUN", "--out", "FILE"), "curves.svg"),
        ((*WATCH, "1", "--html", "FILE"), "game.html"),
        ((*WATCH, "1", "--gif", "FILE"), "game.gif"),
    ],
)
def test_nothing_is_overwritten_unless_it_is_said(capsys, run_folder, tmp_path, words, name):
    out = tmp_path / name
    out.write_bytes(b"mine")
    words = [{"RUN": run_folder, "FILE": out}.get(word, word) for word in words]
    problem = f"error: {out} exists already; nothing was written (--force replaces it)\n"
    assert command(capsys, *words) == (2, "", problem)  # Before anything was played or drawn.
    assert out.read_bytes() == b"mine"
    code, _, err = command(capsys, *words, "-f")
    assert code == 0
    assert f"wrote {out}" in err
    assert out.stat().st_size > 1000


def test_plot_draws_the_log(capsys, run_folder, tmp_path):
    other = shutil.copytree(run_folder, tmp_path / "second")
    words = ("plot", run_folder, other, "--out")
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        assert command(capsys, *words, tmp_path / name)[0] == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    picture = (tmp_path / "a.svg").read_text()
    for comment in ("<!-- return -->", "<!-- entropy -->", "<!-- second -->"):
        assert comment in picture
    assert "win rate" not in picture
    code, _, err = command(capsys, *words, tmp_path / "b.png", "--metrics", "eval/none")
    assert code == 2
    assert "the logs have train/entropy, train/mean_episode_return" in err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["watch"], "; there are also --policy random|greedy-exit|fighter|champion"),
        (["watch", "--policy", "figther"], "--policy: invalid choice: 'figther' (choose from "),
        (
            ["watch", "--policy", "fighter", "--fps", "0"],
            "must be a number from 0.1 to 1000, got 0",
        ),
        (
            ["watch", "--policy", "random", "--seed", str(2**32 - 2), "--episodes", "3"],
            "--seed with --episodes 3 must be at most 4294967293",
        ),
        (["export", "a", "b.onnx"], "there is no run or checkpoint a"),
        (["plot", "--out", "a.pdf", "nowhere"], "--out must end in .png or .svg"),
        (["wach"], "argument COMMAND: invalid choice: 'wach' (choose from "),
        ([], "COMMAND"),
    ],
)
def test_mistakes_are_told_in_one_line(capsys, monkeypatch, tmp_path, words, problem):
    monkeypatch.chdir(tmp_path)  # Somebody may keep runs in ``checkpoints``, the default folder.
    code, out, err = command(capsys, *words)
    assert (code, out) == (2, "")
    assert problem in err
    assert len(err.splitlines()) == 1


def test_watch_without_a_terminal_prints_plain_frames(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    code, out, _ = command(capsys, *WATCH, "4", "--episodes", "2")
    assert code == 0
    assert "\x1b" not in out
    assert out.count("@") >= 10
    for part in (*(f"fighter  seed {n}  step 4" for n in (1, 2)), "policy: →", "over: cut off."):
        assert part in out


def test_watch_writes_pages_and_films_and_overwrites_no_one_of_them(capsys, tmp_path):
    words = (*WATCH, "3", "--episodes", "2", "--html", tmp_path / "game.html")
    words += ("--gif", tmp_path / "game.gif")
    last = tmp_path / "game-2.gif"
    last.write_bytes(b"mine")
    code, _, err = command(capsys, *words)
    assert (code, str(last) in err) == (2, True)
    assert list(tmp_path.iterdir()) == [last]
    last.unlink()
    code, out, _ = command(capsys, *words)
    assert (code, out.count("\n")) == (0, 2)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["game-1.gif", "game-1.html", "game-2.gif", "game-2.html"]
    assert (tmp_path / "game-2.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "game-1.gif").read_bytes().startswith(b"GIF89a")


def test_a_person_plays_by_words(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("HACK\n?\nupp\nsiphon\nleft\nUP\nquit\nup\n"))
    seed = seed_to_play()
    code, out, err = command(capsys, "play", "--seed", str(seed))
    assert code == 0
    for part in ("HACK is not owned", "no action 'upp'; did you mean up?", "no data siphon"):
        assert part in err
    assert "left: a wall" in err
    assert "enemies: a cell away" in out
    assert out.count(f"seed {seed}  step") == 2


def heavy_frame():
    """A frame with as much to say as there can be."""
    flags = {"show": 1, "calm": 1, "step": 1, "pending": 9, "atk_uses": 2}
    start = position(credits=123, energy=456, siphons=12, score=78, **flags)
    seen = scene(positions.load(start))
    rewards = {name: -12.34 if "penalty" in name else 0.0 for name in COMPONENTS}
    rewards |= {"kills": 1.2, "resource_gain": 3.4, "distance_shaping": 0.05}
    probabilities = tuple([0.2] * 4 + [0.1] * 2 + [0.0] * 22)
    decision = Decision(3, probabilities, -123.456)
    return Frame(999, seen, tuple(range(28)), 27, rewards, -1234.56, decision, "")


@pytest.mark.parametrize("keys", [None, KEYS])
def test_a_screen_fits_the_terminal_with_or_without_colors(keys):
    frame = heavy_frame()
    lines = screen(frame, "t" * 200, keys=keys)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    shown = "\n".join(lines)
    assert ("*n:HACK 2c 2e" if keys else "*HACK 2c 2e") in shown
    assert "kills +1.20" in shown
    if not keys:
        assert "policy: up 20% down 20% left 20% →right 20% siphon 10% value -123.46" in shown
    colored = "\n".join(screen(frame, "t" * 200, keys=keys, color=True))
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == shown


def test_why_an_action_is_not_allowed():
    poor = position(credits=0, energy=0, siphons=0, owned=[0])
    for start, action, reason in [
        (poor, 0, "up: a wall"),
        (poor, 4, "no data siphon"),
        (poor, 5, "PUSH costs too much"),
        (poor, 6, "PULL is not owned"),
        (position(), 5, "PUSH would do nothing"),
    ]:
        frame = Frame(0, scene(positions.load(start)), (), None, {}, 0.0, None, "")
        assert why_not(action, frame) == reason
