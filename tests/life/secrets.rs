//! A session's secrets stay between it and its user's disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::harness::{PATIENCE, Pool, environ, pids, wait_until, words};

const SECRET: &str = "hunter2-never-shown";

fn holds(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
}

/// A session that got the secret in every possible way, parked and woken once.
#[track_caller]
fn told(pool: &Pool) -> String {
    let file = pool.path("env");
    fs::write(&file, format!("FROM_FILE={SECRET}\n")).unwrap();
    let mut command = pool.poolctl();
    command.env("FROM_CALLER", SECRET);
    let args = [
        "new",
        "web",
        "--cwd",
        "own",
        "--agent",
        "told",
        "--env",
        "FROM_CALLER",
        "--env-file",
        file.to_str().unwrap(),
    ];
    let id = crate::harness::Output::of(command.args(args), b"").expect(0).text().to_owned();
    let env = pool.dir(&id).join("work/env");
    let told = |times: usize| fs::read_to_string(&env).is_ok_and(|env| env.matches(SECRET).count() == times);
    wait_until("it was told", PATIENCE, || told(3));
    pool.ok(&["park", &id]);
    pool.ok(&["restore", &id]);
    wait_until("it was told twice", PATIENCE, || told(6));
    id
}

fn config() -> String {
    let script = "env | grep ^FROM_ >>env; exec cat";
    format!(
        "[reaper]\ngrace = '200ms'\n[agents.told]\ncommand = 'sh'\nargs = ['-c', '{script}']\nparkable = true\n\
         env = {{ FROM_AGENT = '{SECRET}' }}\n"
    )
}

#[test]
fn g05_a_secret_is_shown_nowhere() {
    let pool = Pool::with(&config());
    let id = told(&pool);
    for args in [
        vec!["show", &id],
        vec!["ls", "--all"],
        vec!["events"],
        vec!["status"],
        vec!["stats"],
        vec!["config", "show"],
        vec!["logs", &id],
        vec!["generators"],
    ] {
        for flags in [&[][..], &["--json"], &["-v"]] {
            let told = pool.ctl(&[flags, &args].concat());
            assert!(!holds(told.stdout.as_bytes()) && !holds(told.stderr.as_bytes()), "{args:?}: {told:?}");
        }
    }
    assert!(!holds(pool.logs().as_bytes()));
    let of_agents = |pid: &u32| environ(*pid).iter().any(|entry| entry.starts_with(b"POOL_INCARNATION="));
    let tells = pids().into_iter().filter(|pid| holds(&words(*pid)) && !of_agents(pid));
    assert_eq!(tells.count(), 0, "no argument of any program");
    let daemons = crate::harness::Program::ALL.into_iter().filter_map(|program| pool.pid(program));
    for pid in daemons.chain(pool.tmux_pid()) {
        assert!(!environ(pid).iter().any(|entry| holds(entry)), "no environment of the pool's own");
    }
    pool.ok(&["--timeout", "60s", "rm", "--archive", "--purge", &id]);
    let archives = fs::read_dir(pool.state().join("archive")).unwrap().flatten().count();
    assert_eq!(archives, 1);
}

#[test]
fn g05_the_job_of_a_run_is_gone_once_it_runs_and_all_else_is_private() {
    let pool = Pool::with(&config());
    let id = told(&pool);
    let run = pool.state().join("run");
    for file in fs::read_dir(&run).unwrap().flatten().filter(|file| file.path().is_file()) {
        let name = file.file_name().to_string_lossy().into_owned();
        assert!(!name.ends_with(".job"), "{name}");
        assert!(!holds(&fs::read(file.path()).unwrap()), "{name}");
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = pool.dir(&id);
    for name in ["", "work", "logs", "tmp"] {
        assert_eq!(mode(&dir.join(name)), 0o700, "{name}");
    }
    let open = everything(&pool.state()).into_iter().filter(|path| mode(path) & 0o077 != 0);
    // The agent's own files follow its umask, inside a private directory.
    let open: Vec<_> = open.filter(|path| !path.starts_with(dir.join("work"))).collect();
    assert!(open.is_empty(), "{open:?}");
}

/// All files and directories below `top`.
fn everything(top: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(everything(&entry.path()));
        }
        if !kind.is_symlink() {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn g04_each_session_has_a_directory_of_its_own_whatever_its_agent() {
    let pool = Pool::with(&config());
    let ids: Vec<String> = (0..3).map(|_| pool.ok(&["new", "--agent", "shell"])).collect();
    let dirs: std::collections::BTreeSet<_> = ids.iter().map(|id| pool.dir(id)).collect();
    assert_eq!(dirs.len(), 3);
    for (id, dir) in ids.iter().zip(&dirs) {
        assert!(dir.ends_with(id), "{}", dir.display());
        for name in ["work", "logs", "tmp"] {
            assert!(dir.join(name).is_dir(), "{name}");
        }
    }
    // `tmp/` is the session's own; its working directory is the user's where one is given.
    let id = pool.ok(&[
        "new",
        "own",
        "--cwd",
        pool.path("work").to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "echo $TMPDIR $PWD >where; exec cat",
    ]);
    let told = pool.await_file("work/where", |bytes| bytes.ends_with(b"\n"));
    let wanted = format!("{} {}\n", pool.dir(&id).join("tmp").display(), pool.path("work").display());
    assert_eq!(String::from_utf8(told).unwrap(), wanted);
    pool.ok(&["rm", "--purge", "own"]);
    assert!(pool.path("work/where").exists(), "what is the user's is never removed");
}

#[test]
fn programs_can_make_sockets_among_their_temporary_files_however_deep_the_pool_lies() {
    let pool = Pool::bare_in(&format!("tp{}", "p".repeat(60)), "");
    pool.start_all();
    let id = pool.ok(&["new", "a", "--", "sh", "-c", "echo $TMPDIR >$TMPDIR/where; exec cat"]);
    let own = pool.state().join("sessions").join(&id).join("tmp");
    let told = pool.await_file(own.join("where"), |bytes| bytes.ends_with(b"\n"));
    let short = String::from_utf8(told).unwrap().trim_end().to_owned();
    // Path that Python's `multiprocessing` adds.
    let socket = std::path::Path::new(&short).join("pymp-abcdefgh/listener-abcdefgh");
    std::fs::create_dir(socket.parent().unwrap()).unwrap();
    std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(
        own.join("pymp-abcdefgh/listener-abcdefgh").exists(),
        "{short} is another name for {}",
        own.display()
    );
}
