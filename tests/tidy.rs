//! The repository's own rules: layers, sizes, `unsafe`, signals, and the documents' references.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate of this workspace, with the crates it may depend on.
const ARROWS: [(&str, &[&str]); 16] = [
    ("protocol", &[]),
    ("agents", &["protocol"]),
    ("pool", &["agents", "protocol"]),
    ("store", &["pool", "protocol"]),
    ("logs", &["process", "protocol"]),
    ("tmux", &["protocol"]),
    ("process", &["protocol"]),
    ("world", &["process", "protocol"]),
    ("daemon", &["agents", "logs", "pool", "process", "protocol", "store", "tmux", "world"]),
    ("watch", &["process", "protocol", "tmux"]),
    ("reap", &["process", "protocol", "tmux"]),
    ("ctl", &["agents", "logs", "process", "protocol"]),
    ("sim", &["daemon", "logs", "process", "protocol", "store", "tmux", "world"]),
    ("fuzz", &["agents", "daemon", "logs", "protocol", "store", "tmux"]),
    ("bench", &["agents", "process", "protocol", "tmux"]),
    ("tmux-pool", &["ctl", "daemon", "process", "protocol", "reap", "tmux", "watch", "world"]),
];

/// External packages, each with the only crates that may depend on it.
const RESERVED: [(&str, &[&str]); 5] = [
    ("redb", &["store", "sim"]),
    ("bincode", &["protocol"]),
    ("rustix", &["process"]),
    ("clap", &["ctl", "sim", "tmux-pool"]),
    ("tokio", &["protocol", "tmux", "daemon", "watch", "reap", "bench", "sim", "tmux-pool", "world"]),
];

/// Maximum lines of a file, of a file in `bin/`, and of a function.
const FILE_MAX: usize = 400;
const MAIN_MAX: usize = 40;
const FUNCTION_MAX: usize = 70;
/// Maximum lines of the README.
const README_MAX: usize = 150;
/// Maximum columns of the README, of comments and of code.
const WIDTH_MAX: usize = 120;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a directory of the repository, relative to its root.
fn files(dir: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![root().join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() && name != "target" && name != ".git" {
                dirs.push(path);
            } else if path.is_file() {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Source files of libraries and programs; with `with_tests`, also those of tests.
pub(crate) fn sources(with_tests: bool) -> Vec<PathBuf> {
    let is_test = |path: &Path| {
        let name = path.file_stem().unwrap().to_string_lossy();
        path.components().any(|part| part.as_os_str() == "tests")
            || name == "tests"
            || name.ends_with("_tests")
    };
    let all = ["bin", "crates", "tests"].into_iter().flat_map(files);
    all.filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .filter(|path| with_tests || !is_test(path))
        .collect()
}

/// Code of a file without its tests and comments.
pub(crate) fn code(path: &Path) -> String {
    let text = read(path);
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Name of the crate that a source file belongs to.
fn owner(path: &Path) -> String {
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    match parts.next().as_deref() {
        Some("crates") => parts.next().unwrap().into_owned(),
        _ => "tmux-pool".to_owned(),
    }
}

/// Names in a manifest's `[dependencies]` sections; with `with_dev`, also in `[dev-dependencies]`.
fn dependencies(manifest: &str, with_dev: bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut wanted = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            wanted = section.ends_with("dependencies")
                && !section.starts_with("workspace")
                && (with_dev || !section.ends_with("dev-dependencies"));
        } else if wanted && !line.is_empty() && !line.starts_with('#') {
            names.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    names
}

fn manifests() -> BTreeMap<String, String> {
    let crates = fs::read_dir(root().join("crates")).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let mut manifests: BTreeMap<String, String> = crates
        .map(|dir| {
            (
                dir.file_name().into_string().unwrap(),
                fs::read_to_string(dir.path().join("Cargo.toml")).unwrap(),
            )
        })
        .collect();
    manifests.insert("tmux-pool".to_owned(), read(Path::new("Cargo.toml")));
    manifests
}

/// Fails if anything is wrong, with a line for each.
#[track_caller]
fn none(wrong: impl IntoIterator<Item = String>) {
    let wrong: Vec<String> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Occurrences of `needle` in product code outside the `allowed` crates: file, line number, line.
fn outside(needle: &str, allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources(false).iter().filter(|path| !allowed.contains(&owner(path).as_str())) {
        let lines = code(path);
        let hits = lines.lines().enumerate().filter(|(_, line)| line.contains(needle));
        found.extend(hits.map(|(n, line)| format!("{}:{}: {}", path.display(), n + 1, line.trim())));
    }
    found
}

#[test]
fn dependencies_point_one_way() {
    let manifests = manifests();
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.into();
    assert_eq!(
        manifests.keys().map(String::as_str).collect::<Vec<_>>(),
        arrows.keys().copied().collect::<Vec<_>>()
    );
    let mut wrong = Vec::new();
    for (name, manifest) in &manifests {
        let depends = dependencies(manifest, false);
        assert!(depends.len() >= 2, "{name}: {depends:?}");
        let ours = depends.iter().filter(|d| arrows.contains_key(d.as_str()));
        wrong.extend(
            ours.filter(|d| !arrows[name.as_str()].contains(&d.as_str())).map(|d| format!("{name} → {d}")),
        );
        for (external, allowed) in RESERVED {
            if depends.contains(external) && !allowed.contains(&name.as_str()) {
                wrong.push(format!("{name} → {external}, which only {allowed:?} may use"));
            }
        }
    }
    none(wrong);
}

#[test]
fn the_core_is_pure() {
    let impure = [
        "std::fs",
        "std::env",
        "std::process",
        "SystemTime",
        "Instant",
        "std::net",
        "std::thread",
        "tokio",
        "nix::",
    ];
    let in_core = |needle: &&str| {
        let others: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).filter(|name| *name != "pool").collect();
        outside(needle, &others)
    };
    none(impure.iter().flat_map(in_core));
}

/// A turn keeps the engine's thread: what it needs of the machine is sampled before, and handed in.
#[test]
fn a_turn_reads_no_file_and_no_process() {
    let layers = ["crates/daemon/src/engine/", "crates/daemon/src/decide/"];
    let in_turns = |hit: &String| layers.iter().any(|layer| hit.starts_with(layer));
    let blocking =
        ["std::fs", "tokio::fs", "std::process", "process::", "statvfs", "thread::sleep", "host::files"];
    // The type alone: the group is looked for by a sampler.
    let types = |hit: &String| hit.contains("use process::cgroup::Subtree");
    let hits = blocking.iter().flat_map(|needle| outside(needle, &[]));
    none(hits.filter(|hit| in_turns(hit) && !types(hit)));
}

#[test]
fn only_tmux_spawns_tmux() {
    // Programs are started by the tmux device, by poolctl (the daemons, and the attach command that poold names),
    // and by the reaper (the commands `before` and `after`).
    let hooks = |hit: &String| hit.starts_with("crates/reap/src/operator_command.rs");
    none(outside("Command::new", &["tmux", "ctl", "bench"]).into_iter().filter(|hit| !hooks(hit)));
    none(outside("\"tmux\"", &["tmux", "bench"]).into_iter().filter(|hit| hit.contains("Command")));
    none(outside("tokio::process", &["tmux"]).into_iter().filter(|hit| !hooks(hit)));
}

/// Files of the daemon that may open files directly, not by the function that treats what an agent could have
/// put there as hostile: files that only the user writes, fresh files, and those beside the database.
const OPENS: [&str; 9] = [
    "config/parse.rs",
    "host/archive/mod.rs",
    "host/archive/part_file.rs",
    "host/disk_reserve.rs",
    "host/files.rs",
    "host/two_slot_file.rs",
    "run/maintenance.rs",
    "run/setup.rs",
    "run/state_lock.rs",
];

#[test]
fn files_that_agents_can_write_are_opened_by_one_function() {
    let allowed = |hit: &String| {
        let file = hit.split(':').next().unwrap_or_default();
        let daemon = file.strip_prefix("crates/daemon/src/");
        daemon.is_none_or(|file| OPENS.iter().any(|open| file.starts_with(open)))
    };
    for needle in ["File::open(", "fs::read(", "read_to_string(", "OpenOptions::new()", "File::options()"] {
        none(outside(needle, &[]).into_iter().filter(|hit| !allowed(hit)));
        let logs = |hit: &String| hit.starts_with("crates/logs/") || hit.starts_with("crates/watch/");
        let names_it = |hit: &String| hit.contains("open_regular(");
        none(outside(needle, &[]).into_iter().filter(|hit| logs(hit) && !names_it(hit)));
    }
}

/// The daemon reaches tasks, clocks, randomness, processes and its socket through `crates/world` alone, so that
/// a simulation decides all of them.
#[test]
fn the_daemon_reaches_the_world_through_its_traits() {
    let past_the_traits = [
        "tokio::spawn",
        "spawn_blocking",
        "block_in_place",
        "SystemTime::now",
        "getrandom",
        "identity::read",
        "inspect::program",
        "inspect::resources",
        "inspect::usage",
        "log_writer::has_writer",
        "tree::Table",
        "identity::exited",
        "identity::identify",
        "identity::me",
        "inspect::machine",
        "tokio::net",
        "tokio::signal",
    ];
    // This file is about a real database file, and runs before there is a world.
    let reserve = |hit: &String| hit.starts_with("crates/daemon/src/host/disk_reserve.rs");
    let in_daemon = |hit: &String| hit.starts_with("crates/daemon/") && !reserve(hit);
    none(past_the_traits.iter().flat_map(|needle| outside(needle, &[])).filter(in_daemon));
}

/// Blocking work has threads of its own, with a limit for each purpose.
#[test]
fn slow_files_have_threads_of_their_own() {
    let owns = ["crates/daemon/src/host/blocking_pool.rs", "crates/daemon/src/sense/sampler.rs"];
    let allowed =
        |hit: &String| !hit.starts_with("crates/daemon/") || owns.iter().any(|own| hit.starts_with(own));
    for needle in ["world.block(", "tasks.block("] {
        none(outside(needle, &[]).into_iter().filter(|hit| !allowed(hit)));
    }
}

/// The daemon measures time by tokio's clock, which a simulation controls; the engine's thread gathers its batches
/// by the system's.
#[test]
fn the_daemon_measures_time_by_tokio() {
    let std_time = outside("use std::time::", &[]).into_iter().filter(|hit| hit.contains("Instant"));
    let in_daemon = |hit: &String| hit.starts_with("crates/daemon/");
    none(std_time.filter(in_daemon).filter(|hit| !hit.starts_with("crates/daemon/src/engine/batching.rs")));
}

/// Without a fixed order, tokio polls the branches of a `select!` in a random one, which no seed decides.
#[test]
fn selects_of_the_daemon_are_biased() {
    let mut wrong = Vec::new();
    for path in sources(false).iter().filter(|path| owner(path) == "daemon") {
        let lines: Vec<String> = code(path).lines().map(|line| line.trim().to_owned()).collect();
        for (n, pair) in lines.windows(2).enumerate() {
            if pair[0].ends_with("select! {") && pair[1] != "biased;" {
                wrong.push(format!("{}:{}: {}", path.display(), n + 1, pair[0]));
            }
        }
    }
    none(wrong);
}

#[test]
fn only_process_sends_signals() {
    for needle in
        ["pidfd_send_signal", "signal::kill", "libc::kill", "kill(Pid", "kill_process", "killpg", "raise("]
    {
        none(outside(needle, &["process"]));
    }
}

/// `spawn` panics where the system starts no further thread: `Builder` and `ctl`'s `threads` return an error.
#[test]
fn a_thread_that_cannot_be_started_is_an_error() {
    for needle in ["thread::spawn(", "scope.spawn("] {
        none(outside(needle, &["bench", "sim"]));
    }
}

#[test]
fn p2_no_signal_goes_to_everybody() {
    let everywhere = |needle: &str| outside(needle, &[]);
    none(
        ["kill(0", "kill(-1", "from_raw(0)", "from_raw(-1)", "kill_current_process_group"]
            .into_iter()
            .flat_map(everywhere),
    );
    // Only an init signals a process group: that of its program, which it created.
    let groups = ["killpg", "kill_process_group"].into_iter().flat_map(everywhere);
    none(groups.filter(|hit| !hit.starts_with("crates/process/src/init/")));
}

#[test]
fn only_programs_end_the_process() {
    let hits = ["process::exit(", "process::abort", "libc::_exit", "panic!("]
        .into_iter()
        .flat_map(|n| outside(n, &["tmux-pool"]));
    // Crash points exist in debug builds only; an init's child that could not exec has no other way to end.
    let meant = ["crates/process/src/runtime/crash.rs", "crates/process/src/init/spawn.rs"];
    none(hits.filter(|hit| !meant.iter().any(|path| hit.starts_with(path))));
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    let mut wrong = outside("unsafe ", &["process", "tmux"]);
    for path in sources(false) {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("unsafe {")) {
            let argued = lines[n.saturating_sub(8)..=n].iter().any(|line| line.contains("SAFETY:"));
            if !argued && !line.trim_start().starts_with("//") {
                wrong.push(format!("{}:{}: no SAFETY argument", path.display(), n + 1));
            }
        }
    }
    none(wrong);
}

#[test]
fn the_codec_is_one_file() {
    none(
        outside("bincode::", &[]).into_iter().filter(|hit| !hit.starts_with("crates/protocol/src/frame.rs")),
    );
}

#[test]
fn w39_no_code_changes_the_environment_of_its_own_process() {
    // Assembled here, so that this file does not contain them.
    let changes = ["set", "remove"].map(|what| format!("{what}_var("));
    let mut found = Vec::new();
    for path in sources(true) {
        let text = read(&path);
        let hits = text.lines().filter(|line| changes.iter().any(|change| line.contains(change.as_str())));
        found.extend(hits.map(|line| format!("{}: {}", path.display(), line.trim())));
    }
    none(found);
}

#[test]
fn files_and_functions_are_short() {
    let mut wrong = Vec::new();
    for path in sources(false) {
        let lines = read(&path).split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count();
        let is_main = path.starts_with("bin") && path.parent() == Some(Path::new("bin"));
        let most = if is_main { MAIN_MAX } else { FILE_MAX };
        if lines > most {
            wrong.push(format!("{}: {lines} lines, over {most}", path.display()));
        }
    }
    none(wrong);
    let limits = read(Path::new(".clippy.toml"));
    assert!(
        limits.contains(&format!("too-many-lines-threshold = {FUNCTION_MAX}")),
        "clippy measures functions"
    );
    assert!(read(Path::new("Cargo.toml")).contains("too_many_lines = "));
}

/// rustfmt wraps no comment, and gives up on code around a text that it cannot break.
#[test]
fn lines_without_a_text_are_narrow() {
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let may_break = |line: &str| is_comment(line) || !line.contains('"');
    let mut wrong = Vec::new();
    for path in sources(true) {
        let text = read(&path);
        let wide = text.lines().enumerate().filter(|(_, line)| line.chars().count() > WIDTH_MAX);
        let wide = wide.filter(|(_, line)| may_break(line));
        wrong.extend(wide.map(|(n, line)| format!("{}:{}: {}", path.display(), n + 1, line.trim())));
    }
    none(wrong);
}

#[test]
fn every_module_says_what_it_is_for() {
    let opens = |path: &PathBuf| read(path).lines().next().is_some_and(|line| line.starts_with("//! "));
    none(sources(true).into_iter().filter(|path| !opens(path)).map(|path| path.display().to_string()));
}

#[test]
fn lints_are_the_workspaces_own_and_never_just_allowed() {
    none(
        manifests()
            .into_iter()
            .filter(|(_, text)| !text.contains("[lints]\nworkspace = true"))
            .map(|(name, _)| name),
    );
    let needle = ["#[", "allow("].concat();
    none(
        sources(true)
            .iter()
            .filter(|path| read(path).contains(&needle))
            .map(|path| path.display().to_string()),
    );
}

#[test]
fn no_c_is_compiled() {
    let lock = read(Path::new("Cargo.lock"));
    let compiles = |package: &&str| {
        package.lines().any(|line| matches!(line.trim(), "\"cc\"," | "\"cmake\"," | "\"bindgen\","))
    };
    none(
        lock.split("[[package]]")
            .filter(compiles)
            .map(|package| package.lines().nth(1).unwrap_or_default().to_owned()),
    );
}

/// Names of all functions in sources and tests.
fn functions() -> BTreeSet<String> {
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix("pub(crate) ").unwrap_or(line.trim_start());
        let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
        rest.split(['(', '<']).next().map(str::to_owned)
    };
    sources(true).iter().flat_map(|path| read(path).lines().filter_map(name).collect::<Vec<_>>()).collect()
}

/// Names of all test functions.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in sources(true) {
        let mut is_test = false;
        for line in read(&path).lines().map(str::trim_start) {
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            if let Some(rest) = name.filter(|_| is_test) {
                found.extend(rest.split(['(', '<']).next().map(str::to_owned));
                is_test = false;
            }
        }
    }
    found
}

/// The ids that a test's name starts with: `d01_q01_a_crash…` has `d1` and `q1`.
fn ids(name: &str) -> Vec<String> {
    let id = |part: &str| {
        let (letter, number) = part.split_at_checked(1)?;
        let number: u32 = number.parse().ok()?;
        letter.starts_with(|c: char| c.is_ascii_lowercase()).then(|| format!("{letter}{number}"))
    };
    name.split('_').take_while(|part| *part == "to" || id(part).is_some()).filter_map(id).collect()
}

/// The ids in the first columns of the tables of `tests/README.md`.
fn legend() -> BTreeSet<String> {
    let text = read(Path::new("tests/README.md"));
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split(", ")).map(str::to_owned).collect()
}

#[test]
fn every_id_of_a_test_is_in_the_legend() {
    // `T-03` and `T3` both stand for `t03_` and `t3_`, `H-3.4` for `h34_`.
    let plain = |id: &String| ids(&id.replace(['-', '.'], "").to_lowercase()).pop();
    let known: BTreeSet<String> = legend().iter().filter_map(plain).collect();
    assert!(known.len() > 100, "{known:?}");
    let tests = tests();
    let used: BTreeSet<String> = tests.iter().flat_map(|name| ids(name)).collect();
    assert!(used.len() > 100, "{used:?}");
    let unknown = |name: &String| ids(name).iter().any(|id| !known.contains(id));
    none(tests.into_iter().filter(unknown));
}

/// The rows of the tables in a section of `tests/README.md`.
fn rows(section: &str) -> Vec<String> {
    let readme = read(Path::new("tests/README.md"));
    let section = readme.split(&format!("\n## {section}")).nth(1).expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| id ");
    section.lines().filter(is_row).map(str::to_owned).collect()
}

#[test]
fn every_invariant_and_row_of_the_readme_has_its_test() {
    let (known, guarded) = (functions(), tests().iter().flat_map(|name| ids(name)).collect::<BTreeSet<_>>());
    let (invariants, inventory) = (rows("Invariants"), rows("Inventory"));
    assert!(invariants.len() >= 100 && inventory.len() >= 150, "{invariants:?} {inventory:?}");
    let names = |row: &str| -> Vec<String> {
        let (_, cell) = row.rsplit_once(" | ").unwrap_or_default();
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let wrong = |row: &&String, may_be_guarded: bool| {
        let names = names(row);
        // A test guards a row also by its own name; some rows say what is not done.
        let first = row.trim_start_matches("| ").split([' ', ',']).next().unwrap_or_default();
        let ids = ids(&first.replace(['-', '.'], "").to_lowercase());
        let is_guarded = || !ids.is_empty() && ids.iter().all(|id| guarded.contains(id));
        let may_be_guarded = may_be_guarded && (row.contains(": not done") || is_guarded());
        names.is_empty() && !may_be_guarded || names.iter().any(|name| !known.contains(name))
    };
    let invariants = invariants.iter().filter(|row| wrong(row, false));
    none(invariants.chain(inventory.iter().filter(|row| wrong(row, true))).cloned());
}

/// Documents whose paths have to exist.
const READMES: [&str; 4] = ["README.md", "crates/README.md", "crates/agents/README.md", "tests/README.md"];

#[test]
fn every_path_of_the_readmes_exists() {
    let mut wrong = Vec::new();
    for readme in READMES {
        let text = read(Path::new(readme));
        let paths = text.split('`').skip(1).step_by(2).filter(|word| {
            ["crates/", "bin/", "tests/", "scripts/"].iter().any(|dir| word.starts_with(dir))
                && !word.contains(['*', ' ', '…', '\n'])
        });
        let beside = Path::new(readme).parent().unwrap();
        let missing =
            paths.filter(|path| !root().join(path).exists() && !root().join(beside).join(path).exists());
        wrong.extend(missing.map(|path| format!("{readme}: {path}")));
    }
    none(wrong);
}

#[test]
fn the_readme_is_short() {
    let readme = read(Path::new("README.md"));
    let lines = readme.lines().count();
    assert!(lines <= README_MAX, "{lines} lines, over {README_MAX}");
    let long = readme.lines().filter(|line| line.chars().count() > WIDTH_MAX);
    none(long.map(str::to_owned));
}

#[test]
fn every_file_of_the_tests_is_a_part_of_them() {
    let mut wrong = Vec::new();
    for path in files("tests").iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs")) {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let dir = path.parent().unwrap();
        let (module, parent) = match stem.as_str() {
            "main" => continue,
            "mod" => (dir.file_name().unwrap().to_string_lossy().into_owned(), dir.parent().unwrap()),
            _ => (stem, dir),
        };
        let parent =
            if parent == Path::new("tests") { parent.join("main.rs") } else { parent.join("mod.rs") };
        if !read(&parent)
            .lines()
            .any(|line| line.trim_start_matches("pub(crate) ") == format!("mod {module};"))
        {
            wrong.push(format!("{} is not in {}", path.display(), parent.display()));
        }
    }
    none(wrong);
}

#[test]
fn no_text_names_a_place_of_one_machine() {
    // Assembled here, so that this file does not contain them.
    let places = [["/wo", "rk/"], ["/ro", "ot/"], ["/fa", "rm/"]].map(|parts| parts.concat());
    let mut wrong = Vec::new();
    for path in files("").into_iter().filter(|path| path.file_name().is_some_and(|name| name != "Cargo.lock"))
    {
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for (n, line) in text.lines().enumerate() {
            let absolute = |place: &String| {
                line.match_indices(place.as_str()).any(|(at, _)| {
                    let before = line[..at].chars().next_back();
                    before.is_none_or(|c| c.is_whitespace() || "\"'`(=:".contains(c))
                })
            };
            if places.iter().any(absolute) {
                wrong.push(format!("{}:{}: {}", path.display(), n + 1, line.trim()));
            }
        }
    }
    none(wrong);
}
