//! Paths of a pool, and checks of private directories.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use protocol::Paths;
use protocol::paths::{Env, PathError, SOCKET_PATH_MAX, check_dir, prepare_dir};

fn env() -> Env {
    Env { home: Some("/home/me".into()), ..Env::default() }
}

fn os(text: &str) -> Option<OsString> {
    Some(text.into())
}

#[test]
fn without_variables_everything_is_below_the_home_directory() {
    let paths = Paths::new(&env()).unwrap();
    let state = Path::new("/home/me/.local/state/tmux-pool/default");
    assert_eq!(paths.state, state);
    assert_eq!(paths.socket, state.join("run/poold.sock"));
    assert_eq!(paths.lock, state.join("run/poold.lock"));
    assert_eq!(paths.tmux_socket, state.join("run/tmux.sock"));
    assert_eq!(paths.database, state.join("pool.redb"));
    assert_eq!(paths.session("sess_3".parse().unwrap()), state.join("sessions/sess_3"));
    assert_eq!(paths.config, Path::new("/home/me/.config/tmux-pool/config.toml"));
    assert_eq!(paths.pool.as_str(), "default");
}

#[test]
fn variables_decide_in_their_order() {
    let state = |env: Env| env.state_dir().unwrap();
    assert_eq!(state(Env { pool: os("work"), ..env() }), Path::new("/home/me/.local/state/tmux-pool/work"));
    let xdg = Env { xdg_state_home: os("/s"), xdg_config_home: os("/c"), ..env() };
    assert_eq!(state(xdg.clone()), Path::new("/s/tmux-pool/default"));
    assert_eq!(xdg.config_path().unwrap(), Path::new("/c/tmux-pool/config.toml"));
    let own = Env { state_dir: os("/own"), socket: os("/sock"), config: os("/conf"), ..xdg };
    assert_eq!(state(own.clone()), Path::new("/own"));
    assert_eq!(own.socket_path().unwrap(), Path::new("/sock"));
    assert_eq!(own.config_path().unwrap(), Path::new("/conf"));
    assert_eq!(Paths::new(&own).unwrap().run, Path::new("/own/run"));
    // An empty variable is unset, and a relative XDG directory is ignored.
    let odd = Env { xdg_state_home: os("here"), state_dir: os(""), pool: os(""), ..env() };
    assert_eq!(state(odd), Path::new("/home/me/.local/state/tmux-pool/default"));
}

#[test]
fn a_socket_needs_no_home() {
    let agent = Env { socket: os("/run/x.sock"), ..Env::default() };
    assert_eq!(agent.socket_path().unwrap(), Path::new("/run/x.sock"));
    assert!(matches!(agent.state_dir(), Err(PathError::NoHome)));
}

#[test]
fn relative_paths_and_odd_names_are_refused() {
    let socket = Env { socket: os("x.sock"), ..env() };
    assert!(matches!(socket.socket_path(), Err(PathError::Relative { name: "POOL_SOCKET", .. })));
    let state = Env { state_dir: os("x"), ..env() };
    assert!(matches!(state.socket_path(), Err(PathError::Relative { name: "POOL_STATE_DIR", .. })));
    for name in ["../x", "a/b", "A", ".", &"a".repeat(33)] {
        let named = Env { pool: os(name), ..env() };
        assert!(named.state_dir().is_err(), "{name}");
    }
    assert!(Env { pool: os(&"a".repeat(32)), ..env() }.state_dir().is_ok());
}

#[test]
fn a_path_that_fits_no_socket_says_what_to_do() {
    let dir = |length: usize| format!("/{}", "d".repeat(length - 1));
    let room = SOCKET_PATH_MAX - "/run/poold.sock".len();
    assert!(Paths::new(&Env { state_dir: os(&dir(room)), ..env() }).is_ok());
    let error = Paths::new(&Env { state_dir: os(&dir(room + 1)), ..env() }).unwrap_err().to_string();
    assert!(
        error.contains("POOL_STATE_DIR") && error.contains(&(SOCKET_PATH_MAX + 1).to_string()),
        "{error}"
    );
    // A short socket path set by `POOL_SOCKET` does not shorten that of tmux.
    assert!(Paths::new(&Env { state_dir: os(&dir(room + 2)), socket: os("/s"), ..env() }).is_err());
}

fn dir(mode: u32) -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("dir");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    (home, path)
}

#[test]
fn only_a_private_directory_is_trusted() {
    let (_home, private) = dir(0o700);
    check_dir(&private).unwrap();
    for mode in [0o701, 0o710, 0o720, 0o750, 0o755, 0o777, 0o1777, 0o704] {
        let (_home, open) = dir(mode);
        let error = check_dir(&open).unwrap_err();
        assert!(matches!(&error, PathError::Mode { mode: found, .. } if *found == mode), "{error}");
        assert!(error.to_string().contains("chmod 700"), "{error}");
        assert!(prepare_dir(&open).is_err(), "it is not changed behind its owner's back");
    }
}

#[test]
fn what_is_no_directory_is_refused_and_left_alone() {
    let (home, real) = dir(0o700);
    let link = home.path().join("link");
    symlink(&real, &link).unwrap();
    let file = home.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [&link, &file] {
        assert!(matches!(check_dir(path), Err(PathError::NotADirectory { .. })));
        assert!(matches!(prepare_dir(path), Err(PathError::NotADirectory { .. })));
    }
    assert!(matches!(check_dir(&home.path().join("none")), Err(PathError::Io { .. })));
    assert_eq!(fs::read_to_string(file).unwrap(), "x");
}

#[test]
fn a_directory_is_made_private_with_all_above_it() {
    let home = tempfile::tempdir().unwrap();
    let deep = home.path().join("a/b/c");
    prepare_dir(&deep).unwrap();
    prepare_dir(&deep).unwrap();
    for path in ["a", "a/b", "a/b/c"] {
        assert_eq!(fs::metadata(home.path().join(path)).unwrap().mode() & 0o7777, 0o700, "{path}");
    }
}

#[test]
fn another_users_directory_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: only root can make a directory of another user");
    }
    let (_home, theirs) = dir(0o700);
    std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
    assert!(matches!(check_dir(&theirs), Err(PathError::Owner { uid: 65534, .. })));
}
