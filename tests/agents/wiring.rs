//! The start of agents: hooks are wired for this launch alone, no file of the user is touched; `hook
//! install` writes hooks on request and removes them again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Output, PATIENCE, Pool, eventually};

/// Records its arguments, one a line, and its environment, then reads.
const AGENT: &str = "#!/bin/sh
printf '%s\\0' \"$@\" >argv
env >env.new
mv env.new env
stty raw -echo
printf '\\033[?2004h'
exec cat >read
";

/// A pool in which every known agent is that program.
fn pool(more: &str) -> Pool {
    let pool = Pool::bare("");
    let program = pool.path("agent");
    fs::write(&program, AGENT).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let kind = |kind: &str| {
        format!("[agents.{kind}]\ncommand = '{}'\nargs = ['--model', 'x y']\n{more}\n", program.display())
    };
    pool.configure(&["claude", "codex", "gemini"].map(kind).concat());
    pool.start_all();
    pool
}

/// A started session, with the arguments and environment of its program.
struct Started {
    id: String,
    dir: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Started {
    #[track_caller]
    fn new(pool: &Pool, agent: &str) -> Self {
        let cwd = pool.path("work").join(agent);
        fs::create_dir_all(&cwd).unwrap();
        let id = pool.ok(&["new", "--no-block", "--agent", agent, "--cwd", cwd.to_str().unwrap()]);
        let env = String::from_utf8(pool.await_file(cwd.join("env"), |_| true)).unwrap();
        let argv = String::from_utf8(fs::read(cwd.join("argv")).unwrap()).unwrap();
        let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self {
            dir: pool.dir(&id),
            args: argv.strip_suffix('\0').unwrap_or_default().split('\0').map(str::to_owned).collect(),
            env: env.lines().filter_map(pair).collect(),
            id,
        }
    }

    /// The session's directory of the pool's own files, which the agent does not write.
    fn meta(&self) -> PathBuf {
        let state = self.dir.parent().and_then(Path::parent).unwrap();
        state.join("meta").join(self.dir.file_name().unwrap())
    }

    #[track_caller]
    fn json(&self, name: &str) -> Value {
        let path = self.meta().join(name);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{name} is private");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }
}

/// Path of the poolctl that hooks must call.
fn poolctl() -> &'static str {
    env!("CARGO_BIN_EXE_poolctl")
}

/// Every file below a directory, with content, mode and time of last change.
fn everything(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            found.extend(everything(&path));
        }
        let held = fs::read(&path).unwrap_or_default();
        found.insert(path, (held, about.mode(), about.ctime(), about.ctime_nsec()));
    }
    found
}

#[test]
fn claude_is_started_with_a_plugin_of_hooks_and_a_conversation_of_its_own() {
    let pool = pool("approve_wait = '90s'");
    let agent = Started::new(&pool, "claude");
    let conversation = pool.show(&agent.id)["conversation"]["id"].as_str().unwrap().to_owned();
    let plugin = agent.meta().join("tmux-pool");
    let wanted =
        ["--model", "x y", "--plugin-dir", plugin.to_str().unwrap(), "--session-id", conversation.as_str()];
    assert_eq!(agent.args, wanted);
    let hooks = agent.json("tmux-pool/hooks/hooks.json")["hooks"].clone();
    for event in [
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Notification",
        "Stop",
        "StopFailure",
        "SessionEnd",
    ] {
        let handler = &hooks[event][0]["hooks"][0];
        assert_eq!(
            (&handler["command"], &handler["args"]),
            (&json!(poolctl()), &json!(["hook", "claude"])),
            "{event}"
        );
        assert!(handler["timeout"].as_u64().is_some_and(|seconds| seconds <= 10), "{handler}");
        assert_eq!(hooks[event][0].get("matcher"), None, "of all tools");
    }
    let asks = &hooks["PermissionRequest"][0]["hooks"][0];
    assert_eq!(
        (&asks["args"], &asks["timeout"]),
        (&json!(["hook", "claude", "--wait", "90000ms"]), &json!(95))
    );
    assert_eq!(agent.env["POOL_HOOKS"], agent.dir.join("hooks").to_str().unwrap());
    assert_eq!(
        (agent.env["POOL_HOOKED"].as_str(), agent.env["POOL_SESSION"].as_str()),
        ("claude", agent.id.as_str())
    );
    assert_eq!(agent.env["POOL_SOCKET"], pool.socket().to_str().unwrap());
    // Wired again at each start, also where the files were removed.
    fs::remove_dir_all(&plugin).unwrap();
    fs::remove_file(pool.path("work/claude/env")).unwrap();
    pool.ok(&["restart", "--no-block", &agent.id]);
    pool.await_file("work/claude/env", |_| true);
    assert_eq!(agent.json("tmux-pool/hooks/hooks.json")["hooks"], hooks);
}

#[test]
fn codex_is_started_with_hooks_that_are_trusted_and_without_a_daemon_of_its_own() {
    let pool = pool("");
    let agent = Started::new(&pool, "codex");
    assert_eq!(agent.args[..2], ["--model", "x y"]);
    assert_eq!(agent.args.last().unwrap(), "--no-daemon");
    let settings: Vec<&str> = agent.args[2..agent.args.len() - 1]
        .chunks(2)
        .map(|pair| {
            assert_eq!(pair[0], "-c");
            pair[1].as_str()
        })
        .collect();
    let state = settings.last().unwrap().strip_prefix("hooks.state={").unwrap();
    for (event, key, wait, timeout) in [
        ("SessionStart", "session_start", "", 5),
        ("UserPromptSubmit", "user_prompt_submit", "", 5),
        ("Stop", "stop", "", 5),
        ("Interrupt", "interrupt", "", 3),
        ("PermissionRequest", "permission_request", " --wait 600000ms", 605),
    ] {
        let found = settings.iter().find(|set| set.starts_with(&format!("hooks.{event}="))).unwrap();
        let command = format!("command=\"{} hook codex{wait}\",timeout={timeout}", poolctl());
        assert!(found.contains(&command), "{found}");
        let trust = format!("\"/<session-flags>/config.toml:{key}:0:0\"={{trusted_hash=\"sha256:");
        assert!(state.contains(&trust), "{event}: {state}");
    }
    assert_eq!(agent.env["POOL_HOOKED"], "codex");
    assert!(!agent.meta().join("tmux-pool").exists());
    // A conversation that exists is resumed by a subcommand behind all of these arguments.
    assert!(!agent.args.contains(&"resume".to_owned()));
}

#[test]
fn gemini_is_started_with_a_file_of_defaults() {
    // Forced on: Gemini CLI reads the file only for root, and tests may run as another user.
    let pool = pool("hooks = true");
    let agent = Started::new(&pool, "gemini");
    assert_eq!(agent.args[..3], ["--model", "x y", "--session-id"]);
    assert_eq!(pool.show(&agent.id)["conversation"]["id"], agent.args[3].as_str());
    let file = agent.env["GEMINI_CLI_SYSTEM_DEFAULTS_PATH"].clone();
    assert_eq!(file, agent.meta().join("gemini-hooks.json").to_str().unwrap());
    let hooks = agent.json("gemini-hooks.json")["hooks"].clone();
    for event in ["SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"] {
        let handler = &hooks[event][0]["hooks"][0];
        assert_eq!(handler["command"], format!("{} hook gemini", poolctl()), "{event}");
        assert!(handler["timeout"].as_u64().is_some_and(|ms| ms >= 1000), "milliseconds: {handler}");
    }
    assert_eq!(agent.env["POOL_HOOKED"], "gemini");
}

#[test]
fn no_file_of_the_user_is_touched_by_starting_agents() {
    let pool = pool("");
    let home = pool.path("home");
    for (file, text) in [
        (".claude/settings.json", "{\"model\": \"opus\" }"),
        (".claude.json", "{}"),
        (".codex/config.toml", "model = 'x'\n"),
        (".codex/hooks.json", "{}"),
        (".gemini/settings.json", "{}"),
    ] {
        fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        fs::write(home.join(file), text).unwrap();
        let project = pool.path("work").join("claude").join(file);
        fs::create_dir_all(project.parent().unwrap()).unwrap();
        fs::write(project, text).unwrap();
    }
    let theirs = |found: BTreeMap<PathBuf, _>| {
        let ours = ["argv", "env", "read"].map(|name| pool.path("work").join("claude").join(name));
        found.into_iter().filter(|(path, _)| !ours.contains(path)).collect::<Vec<_>>()
    };
    let before = (everything(&home), theirs(everything(&pool.path("work/claude"))));
    for agent in ["claude", "codex", "gemini"] {
        let started = Started::new(&pool, agent);
        // A hook's report is accepted, and changes nothing there either.
        let event = json!({"hook_event_name": "Stop", "session_id": "x", "cwd": "/"}).to_string();
        let mut hook = pool.command(poolctl());
        drop(Output::of(hook.args(["hook", agent]).envs(&started.env), event.as_bytes()).expect(0));
        let env = pool.path("work").join(agent).join("env");
        fs::remove_file(&env).unwrap();
        pool.ok(&["restart", "--no-block", &started.id]);
        // Killed earlier it could leave a half-written file.
        pool.await_file(env, |_| true);
        pool.ok(&["kill", &started.id]);
    }
    let after = (everything(&home), theirs(everything(&pool.path("work/claude"))));
    let names = |found: &BTreeMap<PathBuf, _>| found.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&after.0), names(&before.0));
    assert!(after == before);
}

#[test]
fn an_agent_without_hooks_is_started_as_it_is() {
    let pool = pool("hooks = false");
    for agent in ["claude", "codex", "gemini"] {
        let started = Started::new(&pool, agent);
        assert_eq!(started.args[..2], ["--model", "x y"]);
        assert!(
            started.args[2..].iter().all(|arg| arg == "--session-id" || arg.len() == 36),
            "{:?}",
            started.args
        );
        assert!(!started.env.contains_key("POOL_HOOKED"), "{agent}");
        assert!(!started.env.contains_key("GEMINI_CLI_SYSTEM_DEFAULTS_PATH"));
        assert!(
            !started.meta().join("tmux-pool").exists() && !started.meta().join("gemini-hooks.json").exists()
        );
        // Without the pool's hooks, only those that the user installed could confirm a prompt.
        assert_eq!(pool.show(&started.id)["confirm"], "none", "{agent}");
    }
}

/// Configuration file of an agent below the home directory.
fn file_of(pool: &Pool, agent: &str) -> PathBuf {
    pool.path("home").join(match agent {
        "claude" => ".claude/settings.json",
        "codex" => ".codex/hooks.json",
        _ => ".gemini/settings.json",
    })
}

/// Valid but unusual configurations.
fn strange() -> Vec<String> {
    let deep = format!("{{\"x\": {}1{}}}", "[".repeat(100), "]".repeat(100));
    let wide = format!(
        "{{{}\"z\": 1}}",
        (0..3000).map(|n| format!("\"k{n}\": \"v\\u00e9\\\"\",")).collect::<String>()
    );
    let mine = json!({"hooks": {"Stop": [{"matcher": "*", "hooks": [{"type": "command", "command": "say done", "timeout": 5}]}]}, "x": []});
    [
        "{}",
        "{ }\n",
        "{\r\n\t\"model\" : \"opus\",\r\n\t\"n\": 1.50e+2, \"big\": 123456789012345678901234567890\r\n}\r\n",
        "{\"hooks\":{}}",
        "{\"hooks\":{\"Stop\":[]}}",
        "{\"a\":{\"hooks\":{\"Stop\":7}},\"hooks\" : { \"Stop\" : [ ] , \"Stop2\":[] } }   ",
        "{\"\\u0068ooks2\": \"}{][\\\"//\", \"e\": \"\\ud83e\\udd80 é \u{202e}\", \"\": null}",
        &deep,
        &wide,
        &mine.to_string(),
        &serde_json::to_string_pretty(&mine).unwrap(),
    ]
    .map(str::to_owned)
    .to_vec()
}

#[test]
fn what_is_installed_is_taken_out_again_to_the_last_byte() {
    let pool = Pool::bare("");
    for agent in ["claude", "codex", "gemini"] {
        let path = file_of(&pool, agent);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let backup = PathBuf::from(format!("{}.before-tmux-pool", path.display()));
        for text in strange() {
            fs::write(&path, &text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
            let done = |args: &[&str]| {
                let all = [&["--json", "hook", "install", agent], args].concat();
                pool.ctl(&all).expect(0).json()["done"].as_str().unwrap().to_owned()
            };
            assert_eq!(done(&["--dry-run"]), "would_install");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(done(&[]), "installed", "{text}");
            let installed = fs::read_to_string(&path).unwrap();
            let (now, before): (Value, Value) =
                (serde_json::from_str(&installed).unwrap(), serde_json::from_str(&text).unwrap());
            for (key, value) in before.as_object().unwrap().iter().filter(|(key, _)| *key != "hooks") {
                assert_eq!(&now[key], value, "{key}");
            }
            let prompted = if agent == "gemini" { "BeforeAgent" } else { "UserPromptSubmit" };
            let ours = now["hooks"][prompted].to_string();
            assert!(ours.contains(poolctl()) && ours.contains("--installed"), "{ours}");
            assert_eq!(fs::read_to_string(&backup).unwrap(), text);
            assert_eq!((done(&[]).as_str(), fs::read_to_string(&path).unwrap()), ("unchanged", installed));
            assert_eq!(done(&["--uninstall"]), "uninstalled");
            let left = fs::read_to_string(&path).unwrap();
            let left_value: Value = serde_json::from_str(&left).unwrap();
            // Empty containers count as nobody's: with the pool's entries all empty ones are removed.
            let theirs = |mut value: Value| {
                if let Some(hooks) = value["hooks"].as_object_mut() {
                    hooks.retain(|_, groups| groups.as_array().is_none_or(|groups| !groups.is_empty()));
                }
                if value["hooks"].as_object().is_none_or(serde_json::Map::is_empty) {
                    value.as_object_mut().unwrap().remove("hooks");
                }
                value
            };
            assert_eq!(theirs(left_value), theirs(before.clone()), "{text}");
            if before != json!({}) && theirs(before.clone()) == before {
                assert_eq!(left, text, "{agent}");
            }
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
            assert_eq!(done(&["--uninstall"]), "unchanged");
            fs::remove_file(&backup).unwrap();
        }
    }
}

#[test]
fn what_is_no_configuration_is_left_alone_with_everything_beside_it() {
    let pool = Pool::bare("");
    let path = file_of(&pool, "claude");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let texts: [&[u8]; 12] = [
        b"{",
        b"[]",
        b"null",
        b"{\"a\":1,}",
        b"// mine\n{}",
        b"{\"hooks\": 7}",
        b"{\"hooks\": {\"Stop\": {}}}",
        b"{\"hooks\": {\"Stop\": [1]}}",
        b"{\"hooks\": {\"Stop\": [{\"hooks\": \"x\"}]}}",
        b"{} trailing",
        b"{\"a\": \"\xff\"}",
        b"\x00",
    ];
    for text in texts {
        fs::write(&path, text).unwrap();
        let before = everything(&pool.path("home"));
        for flags in [&[][..], &["--uninstall"]] {
            let told = pool.ctl(&[&["hook", "install", "claude"], flags].concat()).expect(1);
            assert!(told.stderr.contains("settings.json"), "{told:?}");
        }
        assert!(everything(&pool.path("home")) == before, "{}", String::from_utf8_lossy(text));
    }
    // Unreadable files and links that lead nowhere are refused too.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    pool.ctl(&["hook", "install", "claude"]).expect(1);
    fs::remove_dir(&path).unwrap();
    symlink("settings.json", &path).unwrap();
    pool.ctl(&["hook", "install", "claude"]).expect(1);
    fs::remove_file(&path).unwrap();
    // A file behind a link is edited there.
    fs::write(pool.path("home/dots.json"), "{}").unwrap();
    symlink("../dots.json", &path).unwrap();
    pool.ok(&["hook", "install", "claude"]);
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("../dots.json"));
    assert!(fs::read_to_string(pool.path("home/dots.json")).unwrap().contains("UserPromptSubmit"));
}

#[test]
fn an_installed_hook_tells_the_pool_only_where_none_is_wired() {
    let pool = pool("hooks = false\nconfirm = 'hook'");
    let path = file_of(&pool, "claude");
    pool.ok(&["hook", "install", "claude"]);
    let text = fs::read_to_string(&path).unwrap();
    let settings: Value = serde_json::from_str(&text).unwrap();
    let agent = Started::new(&pool, "claude");
    let conversation = pool.show(&agent.id)["conversation"]["id"].clone();
    // Runs a hook as the agent does: the program with its arguments, and the event on standard input.
    let run = |event: &str, more: Value, hooked: bool| {
        let handler = &settings["hooks"][event][0]["hooks"][0];
        let mut command = pool.command(handler["command"].as_str().unwrap());
        command.args(handler["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()));
        command.env_clear().envs(&agent.env);
        if hooked {
            command.env("POOL_HOOKED", "1");
        }
        let mut input = json!({"hook_event_name": event, "session_id": conversation, "cwd": "/"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let told = Output::of(&mut command, input.to_string().as_bytes());
        assert_eq!((told.code, told.stdout.as_str(), told.stderr.as_str()), (0, "", ""), "{told:?}");
    };
    run("SessionStart", json!({"source": "startup"}), true);
    assert_ne!(pool.show(&agent.id)["activity_source"], "hook", "it leaves it to those of the launch");
    run("SessionStart", json!({"source": "startup"}), false);
    let is = |state: &str| {
        eventually(&format!("it is {state} by its hook"), PATIENCE, || {
            let shown = pool.show(&agent.id);
            (shown["activity"] == state && shown["activity_source"] == "hook").then_some(())
        });
    };
    is("idle");
    let message = pool.ok(&["send", &agent.id, "do it"]);
    pool.await_file("work/claude/read", |bytes| bytes.ends_with(b"do it\x1b[201~\r"));
    run("UserPromptSubmit", json!({"prompt": "do it", "prompt_id": "p1"}), false);
    is("busy");
    run("Stop", json!({"last_assistant_message": "did it", "prompt_id": "p1"}), false);
    pool.ok(&["wait", &agent.id, "--for", &format!("message:{message}")]);
    assert_eq!(pool.json(&["queue", "show", &agent.id, &message])["result"], "did it");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}
