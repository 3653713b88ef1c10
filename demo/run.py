"""The tour that `make demo` gives: each command is run as it is shown, and what it prints is what you see."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from omnigraph.cli.main import main as omnigraph

HERE = Path(__file__).resolve().parent
OUT = HERE / "out"
CLUSTER_OUT = HERE / "out-cluster"
# A folder that has this file was made by an earlier tour, and may be replaced.
MARK = ".made-by-the-demo"
BIN = Path(sys.executable).parent
GRAPH = "social.omni"
ME = "mira-1"
# A failpoint: the process stops itself there, so that the kill hits it at this very place.
BETWEEN_TABLES = "mutation.post_table_commit=stop"
NEWCOMERS = (
    {"type": "Person", "data": {"handle": "ada", "name": "Ada", "city": "Lyon", "joined": "2030-01-31"}},
    {"edge": "Follows", "from": "ada", "to": ME, "data": {"since": "2030-01-31"}},
)
TOKENS, POLICY, SERVER_LOG = "tokens.json", "policy.yaml", "server.log"
RULES = """\
version: 1
groups: {authors: [ann, bo], stewards: [ann]}
protected_branches: [main]
rules:
  - {id: read, allow: {actors: {group: authors}, actions: [read]}}
  - {id: draft, allow: {actors: {group: authors}, actions: [change], branch_scope: unprotected}}
  - {id: branch, allow: {actors: {group: authors}, actions: [branch_create, branch_delete]}}
  - {id: merge, allow: {actors: {group: stewards}, actions: [branch_merge]}}
"""


class DemoFailed(Exception):
    """A command did not do what the tour is about."""


@dataclass(frozen=True, slots=True)
class Tour:
    """Commands run in the current folder for a reader to see."""

    apart: bool
    """Whether each command has a process of its own, as in a terminal; starting one takes a second."""
    colour: bool

    def say(self, text: str) -> None:
        print(f"\n{self._styled(text, '1')}", flush=True)

    def show(self, command: str) -> None:
        print(self._styled(f"$ {command}", "2"), flush=True)

    def omnigraph(self, *arguments: str) -> None:
        """Run a command of omnigraph; its output goes straight to the reader."""
        if self.apart:
            self.run("omnigraph", *arguments)
            return
        self.show(shlex.join(("omnigraph", *arguments)))
        _must_succeed(("omnigraph", *arguments), omnigraph(arguments))

    def run(self, *command: str) -> None:
        self.show(shlex.join(command))
        _must_succeed(command, subprocess.run(_find_program(command), check=False).returncode)

    def kill(self, *arguments: str, at: str) -> None:
        """Start a command, wait until it stands at a failpoint, and kill it there."""
        command = ("omnigraph", *arguments)
        self.show(f"OMNIGRAPH_FAILPOINTS={at} {shlex.join(command)} 2>/dev/null &")
        environment = {**os.environ, "OMNIGRAPH_FAILPOINTS": at}
        # Its bar would stay on the terminal, with the cursor hidden.
        unseen = subprocess.DEVNULL
        with subprocess.Popen(_find_program(command), env=environment, stderr=unseen) as writer:
            _, status = os.waitpid(writer.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                writer.returncode = os.waitstatus_to_exitcode(status)
                raise DemoFailed(f"`{shlex.join(command)}` never came to {at}")
            self.show(f"kill -KILL {writer.pid}")
            writer.send_signal(signal.SIGKILL)
        print(f"process {writer.pid} ended by signal {-writer.returncode}", flush=True)

    def cat(self, file: str) -> None:
        self.show(f"cat {file}")
        print(Path(file).read_text(encoding="utf-8"), end="", flush=True)

    @contextmanager
    def exported(self, name: str, value: str) -> Iterator[None]:
        """Set a variable of the environment for the commands of a block."""
        self.show(f"export {name}={shlex.quote(value)}")
        os.environ[name] = value
        try:
            yield
        finally:
            del os.environ[name]

    @contextmanager
    def serve(self, *arguments: str) -> Iterator[str]:
        """Run a server for the commands of a block, which get its address, and end it gracefully."""
        command = ("omnigraph", "serve", *arguments, "--bind", "127.0.0.1:0")
        self.show(f"{shlex.join(command)} 2>{SERVER_LOG} &")
        with (
            Path(SERVER_LOG).open("w", encoding="utf-8") as log,
            subprocess.Popen(_find_program(command), stdout=subprocess.PIPE, stderr=log, text=True) as server,
        ):
            try:
                yield self._wait_for_address(server)
            finally:
                self.show(f"kill -TERM {server.pid}")
                server.terminate()
        print(f"process {server.pid} ended with status {server.returncode}", flush=True)
        _must_succeed(command, server.returncode)

    @staticmethod
    def _wait_for_address(server: subprocess.Popen[str]) -> str:
        """The address of a server, which it prints when it answers requests."""
        assert server.stdout is not None
        line = server.stdout.readline()
        print(line, end="", flush=True)
        name, _, address = line.strip().partition("=")
        if name != "OMNIGRAPH_LISTEN_ADDR":
            raise DemoFailed(f"the server did not start; see {SERVER_LOG}")
        return f"http://{address}"

    def _styled(self, text: str, style: str) -> str:
        return f"\033[{style}m{text}\033[0m" if self.colour else text


def _find_program(command: tuple[str, ...]) -> list[str]:
    """Programs of the environment that this runs in."""
    return [str(BIN / command[0]), *command[1:]]


def _must_succeed(command: tuple[str, ...], status: int) -> None:
    if status != 0:
        raise DemoFailed(f"`{shlex.join(command)}` ended with {status}")


def main() -> int:
    options = argparse.ArgumentParser(description="A tour of omnigraph, with real output.")
    options.add_argument("--quick", action="store_true", help="10,000 rows and no Spark")
    options.add_argument("--cluster", action="store_true", help="a deployment declared in files")
    options.add_argument("--out", type=Path, metavar="FOLDER", help="where to leave the graph")
    asked = options.parse_args()
    out = asked.out or (CLUSTER_OUT if asked.cluster else OUT)
    began = time.monotonic()
    tour = Tour(apart=not asked.quick, colour=sys.stdout.isatty())
    # As the reader would write it, from where they stand.
    place = os.path.relpath(out)
    try:
        enter(out)
        tour.show(f"cd {place}")
        if asked.cluster:
            sys.path.insert(0, str(HERE.parent))
            from demo.cluster import give_cluster_tour

            give_cluster_tour(tour)
            return 0
        provide_files()
        give(tour, quick=asked.quick)
    except DemoFailed as failed:
        print(f"demo: {failed}", file=sys.stderr)
        return 1
    farewell(tour, place, time.monotonic() - began)
    return 0


def enter(folder: Path) -> None:
    """Stand in an empty folder; only one of an earlier tour is replaced."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise DemoFailed(f"{folder} has files that are not of a demo; name another folder with --out")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    Path(MARK).touch()


def provide_files() -> None:
    """Copy the schema and the queries."""
    for name in ("social.pg", "social.gq", "share.py"):
        shutil.copy(HERE / name, name)
    lines = "".join(json.dumps(record) + "\n" for record in NEWCOMERS)
    Path("newcomers.jsonl").write_text(lines, encoding="utf-8")
    os.environ["OMNIGRAPH_EMBED_PROVIDER"] = "offline"


def give(tour: Tour, *, quick: bool) -> None:
    """All stations, in order."""
    fill(tour, quick=quick)
    loaded = datetime.now(UTC)
    search(tour)
    branch_and_merge(tour)
    kill_and_recover(tour)
    look_back(tour, loaded)
    share(tour)


def fill(tour: Tour, *, quick: bool) -> None:
    rows = "10000" if quick else "1000000"
    tour.say("A sample: people who follow each other, and what they write, with vectors of what it means.")
    tour.run("python", os.path.relpath(HERE / "sample.py"), "data", "--rows", rows)
    tour.say("A graph is a folder. Everything in it is typed by a schema.")
    tour.omnigraph("init", "--schema", "social.pg", GRAPH)
    if quick:
        tour.say("One load, one commit: all rows checked, or nothing happens.")
    else:
        tour.say(
            "One load, one commit, on all cores. Spark takes 10 to 40 seconds to start for the first time."
        )
    # Each file by name: the bar then knows how much there is to read.
    files = [part for path in sorted(Path("data").iterdir()) for part in ("--data", str(path))]
    engine = "local" if quick else "spark"
    tour.omnigraph("load", GRAPH, *files, "--mode", "append", "--engine", engine, "--as", "ann", "--quiet")


def search(tour: Tour) -> None:
    tour.say("A walk: everybody within three follows of one person, by city.")
    tour.omnigraph("query", "reach", "--query", "social.gq", "-p", f"handle={ME}", "--store", GRAPH)
    tour.say("Search by meaning and by words at once. Questions are embedded on this machine.")
    tour.show("export OMNIGRAPH_EMBED_PROVIDER=offline")
    question = "question=how to photograph the night sky"
    tour.omnigraph("query", "ideas", "--query", "social.gq", "-p", question, "--store", GRAPH)
    tour.say("All in one query: a walk, a ranking by words, a distance of vectors.")
    tour.omnigraph(
        *("query", "feed", "--query", "social.gq", "-p", f"handle={ME}", "-p", "words=stars and comets"),
        *("--store", GRAPH),
    )


def branch_and_merge(tour: Tour) -> None:
    tour.say(
        "A branch copies nothing. Both sides change, the diff tells how they differ, the merge is one commit."
    )
    change = ("--query", "social.gq", "--store", GRAPH)
    tour.omnigraph("branch", "create", "--store", GRAPH, "draft", "--quiet")
    tour.omnigraph(
        *("mutate", "retitle", *change, "--branch", "draft", "--as", "bo"),
        *("-p", "slug=doc-1", "-p", "title=Reviewed"),
    )
    tour.omnigraph("mutate", "move", *change, "--as", "ann", "-p", f"handle={ME}", "-p", "city=Oslo")
    tour.omnigraph("diff", "main", "draft", "--store", GRAPH)
    tour.omnigraph("branch", "merge", "draft", "--store", GRAPH, "--as", "ann", "--delete-branch", "--quiet")


def kill_and_recover(tour: Tour) -> None:
    tour.say("A writer dies between two tables. No reader sees half of it, and the next writer clears up.")
    load = ("load", GRAPH, "--data", "newcomers.jsonl", "--mode", "append", "--as", "bo", "--quiet")
    tour.kill(*load, at=BETWEEN_TABLES)
    tour.omnigraph("recover", GRAPH, "--dry-run")
    tour.omnigraph("query", "size", "--query", "social.gq", "--store", GRAPH)
    tour.omnigraph(*load)
    tour.omnigraph("commit", "list", GRAPH)


def look_back(tour: Tour, loaded: datetime) -> None:
    tour.say("Every commit stays readable, by its id, its version or a time: here as the load left it.")
    then = loaded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    tour.omnigraph("query", "size", "--query", "social.gq", "--store", GRAPH, "--at", then)


def share(tour: Tour) -> None:
    tour.say("A team shares a graph through a server: tokens name actors, a policy says what they may do.")
    tokens = {actor: secrets.token_hex(8) for actor in ("ann", "bo")}
    Path(TOKENS).write_text(json.dumps(tokens), encoding="utf-8")
    Path(POLICY).write_text(RULES, encoding="utf-8")
    tour.cat(POLICY)
    with (
        tour.exported("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", TOKENS),
        tour.serve("--store", GRAPH, "--policy", POLICY) as url,
    ):
        tour.say("The library is the same on a server. Bo may not write to main, so ann merges bo's branch.")
        tour.cat("share.py")
        tour.run("python", "share.py", f"{url}/graphs/default")
        tour.say("So is the command line.")
        with tour.exported("OMNIGRAPH_BEARER_TOKEN", tokens["bo"]):
            at_server = ("--server", url, "--graph", "default")
            tour.omnigraph("query", "home", "--query", "social.gq", "-p", f"handle={ME}", *at_server)
        tour.say("A server that is asked to end finishes what is under way.")


def farewell(tour: Tour, place: str, seconds: float) -> None:
    """Where the graph is, and what to try next."""
    programs = os.path.relpath(BIN)
    tour.say(f"That was {seconds:.0f} seconds. The graph stays in {place}; go on with it:")
    for command in (
        f"cd {place}",
        f'export PATH="$PWD/{programs}:$PATH" OMNIGRAPH_EMBED_PROVIDER=offline',
        f"omnigraph query ideas --query social.gq -p question='sharp knives and slow food' --store {GRAPH}",
        f"omnigraph explain feed --query social.gq -p handle={ME} -p words=comets --store {GRAPH}",
        f"omnigraph export {GRAPH} --type Person -o people.ndjson",
        f"omnigraph changes --store {GRAPH} --since now",
        f"omnigraph policy explain --file {POLICY} --actor bo --action change --branch main",
    ):
        print(f"  {command}")


if __name__ == "__main__":
    sys.exit(main())
