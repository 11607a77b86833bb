"""Basis of the tests: homes for the agents, the mock of their models, a pool, and the agents' own records."""
import contextlib
import glob
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ["poold", "tmux-watch", "reaper", "poolctl"]
KEY = "sk-ant-mock-0123456789abcdef0123456789"
MODEL_DELAY_S = 0.05
# Working directories of sessions; the agent knows and trusts all but the last.
PLACES = ["main", "untrusted"]
# A file of the repository in which Aider runs.
TRACKED = "tracked.md"
# Final states of a message.
OVER = {"done", "dead", "cancelled", "expired"}


class Failed(Exception):
    """The part cannot go on."""


def until(what, seconds, found, pause=0.05):
    """Waits until `found` returns a true value; returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := found():
            return answer
        time.sleep(pause)
    raise Failed(f"not within {seconds} s: {what}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def toml(table):
    """Lines of a TOML table; a dictionary as a value becomes an inline table."""
    def value(v):
        if isinstance(v, dict):
            return "{ " + ", ".join(f"{json.dumps(k)} = {value(x)}" for k, x in v.items()) + " }"
        return "[" + ", ".join(map(value, v)) + "]" if isinstance(v, list) else json.dumps(v)
    return "".join(f"{key} = {value(v)}\n" for key, v in table.items())


class Lab:
    """A pool for one kind of agent, with everything it needs."""

    def __init__(self, kind, agent, programs):
        self.kind, self.agent = kind, agent
        # Gemini CLI accepts per-launch hooks from root only: other users install them.
        self.installs = kind == "gemini" and os.geteuid() != 0
        # Short, since a socket path has at most 107 bytes. Gemini CLI reads the pool's hooks only from directories that
        # only root can write.
        top = pathlib.Path.home() if kind == "gemini" else "/tmp"
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tpa", dir=top))
        self.home, self.made, self.hook_ran = (self.dir / name for name in ("home", "made-by-tool", "users-hook-ran"))
        self.bin = self.dir / "bin"
        for place in [self.home / f".{kind}", self.bin, *map(self.place, PLACES)]:
            place.mkdir(parents=True)
        # Copies, so that a build meanwhile does not interfere.
        for name in PROGRAMS:
            shutil.copy2(pathlib.Path(programs) / name, self.bin)
        subprocess.run(["git", "init", "-q", self.place("untrusted")], check=True)
        self.port = free_port()
        self.environment = {
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8",
            "TERM": "xterm-256color", "POOL_NAME": "agents", "POOL_STATE_DIR": str(self.dir / "state"),
            "POOL_CONFIG": str(self.dir / "config.toml"), "POOL_LOG": "info",
        }
        getattr(self, f"{kind}_home")()
        self.configure()
        if self.installs:
            self.poolctl("hook", "install", kind)
        self.mock = None

    def place(self, name):
        return self.dir / "places" / name

    def users_hook(self):
        return {"type": "command", "command": f"touch {self.hook_ran}", "timeout": 9}

    def claude_home(self):
        known = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        projects = {str(self.place(name)): known for name in PLACES[:-1]}
        (self.home / ".claude.json").write_text(json.dumps({
            "hasCompletedOnboarding": True, "projects": projects,
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []}}))
        self.users_file = self.home / ".claude" / "settings.json"
        self.users_file.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [self.users_hook()]}]}}, indent=4))
        self.agent_environment = {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.port}", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # An outage is reported after one retry instead of after minutes.
            "CLAUDE_CODE_MAX_RETRIES": "1"}
        self.credentials = {"ANTHROPIC_API_KEY": KEY}

    def codex_home(self):
        self.users_file = self.home / ".codex" / "config.toml"
        # Codex recognises by this hash that the user has trusted the hook.
        told = json.dumps({"event_name": "stop", "hooks": [{"async": False, **self.users_hook()}]}, sort_keys=True, separators=(",", ":"))
        trust = {f"{self.users_file}:stop:0:0": {"trusted_hash": "sha256:" + hashlib.sha256(told.encode()).hexdigest()}}
        trusted = "".join(f'[projects."{self.place(name)}"]\ntrust_level = "trusted"\n' for name in PLACES[:-1])
        self.users_file.write_text(f'''# The user's own words.
model_provider = "mock"
model = "gpt-5.1-codex"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "http://127.0.0.1:{self.port}/v1"
env_key = "MOCK_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
[hooks]
{toml({"Stop": [{"hooks": [self.users_hook()]}], "state": trust})}{trusted}''')
        self.agent_environment, self.credentials = {"CODEX_HOME": str(self.home / ".codex")}, {"MOCK_KEY": "x"}

    def gemini_home(self):
        self.users_file = self.home / ".gemini" / "settings.json"
        users_hook = {**self.users_hook(), "timeout": 9000}
        self.users_file.write_text(json.dumps({
            "security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"enableAutoUpdate": False},
            "hooks": {"AfterAgent": [{"hooks": [users_hook]}]}}, indent=4))
        trusted = {str(self.place(name)): "TRUST_FOLDER" for name in PLACES[:-1]}
        (self.home / ".gemini" / "trustedFolders.json").write_text(json.dumps(trusted))
        self.agent_environment = {
            "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{self.port}", "GEMINI_MODEL": "gemini-2.5-flash",
            "GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(self.dir / "no-settings.json")}
        self.credentials = {"GEMINI_API_KEY": KEY}

    def opencode_home(self):
        self.users_file = self.home / ".config" / "opencode" / "opencode.json"
        self.users_file.parent.mkdir(parents=True)
        self.users_file.write_text(json.dumps({
            "autoupdate": False, "share": "disabled",
            "provider": {"anthropic": {"options": {"baseURL": f"http://127.0.0.1:{self.port}/v1", "apiKey": KEY}}},
            "model": "anthropic/claude-sonnet-4-5", "small_model": "anthropic/claude-haiku-4-5"}, indent=4))
        self.agent_environment = {name: "1" for name in (
            "OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_LSP_DOWNLOAD", "OPENCODE_DISABLE_MODELS_FETCH")}
        self.credentials = {}

    def aider_home(self):
        self.users_file = self.home / ".aider.conf.yml"
        self.users_file.write_text("check-update: false\nanalytics: false\nshow-model-warnings: false\nshow-release-notes: false\n"
                                   "gitignore: false\nmodel: anthropic/claude-sonnet-4-5\n")
        # In a repository, Aider offers to add each of its files that a prompt names.
        (self.place("main") / TRACKED).touch()
        subprocess.run(["git", "init", "-q", self.place("main")], check=True)
        subprocess.run(["git", "-C", self.place("main"), "add", TRACKED], check=True)
        self.agent_environment = {"ANTHROPIC_API_BASE": f"http://127.0.0.1:{self.port}", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        self.credentials = {"ANTHROPIC_API_KEY": KEY}

    def configure(self):
        """Writes three agent kinds: the built-in one, `quick` with a short `approve_wait`, `subscriber` with an account instead of a key."""
        built_in = {
            "claude": {"start_args": ["--session-id", "{conversation}"], "resume_args": ["--resume", "{conversation}"]},
            "codex": {"resume_args": ["resume", "{conversation}"]},
            "gemini": {"start_args": ["--session-id", "{conversation}"], "resume_args": ["--resume", "{conversation}"]},
            "opencode": {"resume_args": ["--session", "{conversation}"]},
            "aider": {"resume_args": ["--restore-chat-history"]},
        }[self.kind]
        spelled = {**built_in, "adapter": self.kind, "confirm": "hook", "hooks": not self.installs, "go_on": "continue"}
        account = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-mock0123456789"} if self.kind == "claude" else self.credentials
        kinds = {self.kind: ({"confirm": "hook"} if self.installs else {}, self.credentials), "quick": ({**spelled, "approve_wait": "3s"}, self.credentials),
                 "subscriber": (spelled, account)}
        tables = [f"[agents.{name}]\n" + toml({"command": self.agent, "env": {**self.agent_environment, **keys}, **more})
                  for name, (more, keys) in kinds.items()]
        (self.dir / "config.toml").write_text("\n".join(tables))
        (self.dir / "config.toml").chmod(0o600)  # whatever the umask is

    def __enter__(self):
        command = [HERE.parent / "dev" / "mock-model-api", self.port, MODEL_DELAY_S, self.dir / "model.log", self.made]
        self.mock = subprocess.Popen([sys.executable, *map(str, command)], stdin=subprocess.DEVNULL)
        try:
            self.poolctl("up", timeout=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.poolctl("down", "--stop-sessions", timeout=60)
        socket_path = self.dir / "state" / "run" / "tmux.sock"
        subprocess.run(["tmux", "-S", socket_path, "kill-server"], stderr=subprocess.DEVNULL, check=False)
        if self.mock:
            self.mock.terminate()
            self.mock.wait()

    def poolctl(self, *words, said=None, may_fail=False, timeout=90):
        done = subprocess.run([self.bin / "poolctl", *map(str, words)], env=self.environment, cwd=self.dir, timeout=timeout,
                              input=said, stdin=None if said is not None else subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode and not may_fail:
            shown = " ".join(map(str, words))
            raise Failed(f"poolctl {shown}: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
        return done

    def ask(self, *words, **how):
        """Runs poolctl --json; returns its documents."""
        lines = self.poolctl(*words, "--json", **how).stdout.decode(errors="replace").split("\n")
        return [json.loads(line) for line in lines if line]

    def poold(self):
        """Pid of poold, if it answers."""
        found = self.ask("status", "--timeout", "1s", may_fail=True)
        return found[0].get("pid") if found else None

    def kill_poold(self):
        """Kills poold with SIGKILL, and waits until its supervisor has started another one."""
        old = until("poold answers", 60, self.poold)
        os.kill(old, signal.SIGKILL)
        with contextlib.suppress(Failed):
            return until("poold is back", 3, lambda: self.poold() not in (None, old))
        # The supervisor's pause grows with each kill; a new supervisor starts with the shortest.
        self.poolctl("down", timeout=60)
        return self.poolctl("up", timeout=60)

    def processes(self):
        """Command lines of the processes of this lab, by pid."""
        found = {}
        for path in map(pathlib.Path, glob.glob("/proc/[0-9]*")):
            with contextlib.suppress(OSError):
                if str(self.dir).encode() in (path / "environ").read_bytes():
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def session(self, name, agent=None, place="main"):
        return Session(self, name, agent or self.kind, place)

    def reconfigure(self, more):
        """Adds to the configuration and reloads it."""
        with (self.dir / "config.toml").open("a") as config:
            config.write(f"\n{more}")
        self.poolctl("config", "reload")


class Session:
    """A session of the pool, driven by `poolctl`, and its agent's own record of it."""

    def __init__(self, lab, name, agent, place):
        self.lab, self.name, self.sent = lab, name, 0
        lab.poolctl("new", name, "--agent", agent, "--cwd", lab.place(place), "--wait-slot", "60s")

    def show(self):
        return self.lab.ask("show", self.name)[0]

    def send(self, text, wait="done", seconds=60, more=()):
        """Sends a prompt; returns the message as it is at the end of the wait."""
        self.sent += 1
        key = f"{self.name}-{self.sent}"
        words = ["send", self.name, "-", "--key", key, "--wait", wait, "--timeout", f"{seconds}s", *more]
        said = text if isinstance(text, bytes) else text.encode()
        found = self.lab.ask(*words, said=said, may_fail=True, timeout=seconds + 30)
        if found and "id" in found[0]:
            return found[0]
        mine = [message for message in self.messages() if message["key"] == key]
        return mine[0] if mine else {"state": "refused"}

    def messages(self):
        return self.lab.ask("queue", "ls", self.name, "--limit", 100_000)

    def message(self, number):
        return self.lab.ask("queue", "show", self.name, number)[0]

    def wait(self, what, found, seconds=30):
        """`until`, with the session's state in the error."""
        try:
            return until(what, seconds, found)
        except Failed as failed:
            raise Failed(f"{failed}; session: {told(self.show())}; {[(m['state'], m['reason']) for m in self.messages()][-3:]}") from None

    def wait_state(self, number, *states, seconds=30):
        def look():
            message = self.message(number)
            return message["state"] in states and message
        return self.wait(f"message {number} is {' or '.join(states)}", look, seconds)

    def wait_over(self, number, seconds=30):
        return self.wait_state(number, *OVER, seconds=seconds)

    def wait_shown(self, what, wanted, seconds=30):
        """Waits until `wanted` is true of the session's document; returns it."""
        def look():
            shown = self.show()
            return wanted(shown) and shown
        return self.wait(what, look, seconds)

    def keys(self, *keys):
        self.lab.poolctl("keys", self.name, *keys)

    def screen(self):
        return self.lab.poolctl("capture", self.name).stdout.decode(errors="replace")

    def transcript(self):
        """Path of the agent's own record of this conversation."""
        known = (self.show()["conversation"] or {}).get("id")
        if self.lab.kind == "aider":
            return next(self.lab.dir.glob(f"state/sessions/{self.show()['id']}/aider.input.history"), None)
        if not known:
            return None
        if self.lab.kind == "opencode":
            return self.lab.home / ".local" / "share" / "opencode" / "opencode.db" / known  # a row of the database
        end = known[:8] if self.lab.kind == "gemini" else known
        found = sorted(glob.glob(f"{self.lab.home}/.{self.lab.kind}/**/*{end}.jsonl", recursive=True))
        return pathlib.Path(found[0]) if found else None  # Gemini CLI also starts a new file when it resumes, and leaves it unused

    def prompts(self):
        """Prompts that the agent accepted, from its own record."""
        if self.lab.kind == "opencode":
            return self.prompts_in_database()
        if self.lab.kind == "aider":
            return self.prompts_in_history()
        path = self.transcript()
        lines = path.read_text(errors="surrogateescape").split("\n") if path else []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                found.append(prompt_in(self.lab.kind, json.loads(line)))
        return [prompt for prompt in found if prompt is not None]

    def prompts_in_database(self):
        path = self.transcript()
        if not path or not path.parent.exists():
            return []
        with contextlib.closing(sqlite3.connect(f"file:{path.parent}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "select part.data from part join message on message.id = part.message_id where part.session_id = ? "
                "and json_extract(message.data, '$.role') = 'user' order by message.time_created, message.id, part.id", [path.name])
            parts = [json.loads(data) for data, in rows]
        return [part["text"] for part in parts if part["type"] == "text" and not part.get("synthetic")]

    def prompts_in_history(self):
        path = self.transcript()
        entries = path.read_text().split("\n# ")[1:] if path else []
        return ["\n".join(line[1:] for line in entry.split("\n")[1:] if line.startswith("+")) for entry in entries]


def told(shown):
    """Summary of a session's state, for messages."""
    ask = f", asks {shown['ask']}" if shown["ask"] else ""
    return f"{shown['lifecycle']}, {shown['activity']} by {shown['activity_source']}, waits: {shown['waits']}{ask}"


def prompt_in(kind, line):
    """The prompt recorded by a line of the agent's record, if any."""
    if kind == "claude":
        said = line.get("message", {}).get("content") if line.get("type") == "user" else None
        return said if isinstance(said, str) and not line.get("isMeta") and not line.get("isSidechain") else None
    if kind == "gemini":
        parts = line.get("content") if line.get("type") == "user" else []
        said = "".join(part.get("text", "") for part in parts)
        return said if said and not said.startswith("<session_context>") else None
    item = line.get("payload", {}).get("item", {}) if line.get("type") == "event_msg" else {}
    if line.get("payload", {}).get("type") != "item_completed" or item.get("type") != "UserMessage":
        return None
    return "".join(part.get("text", "") for part in item["content"])
