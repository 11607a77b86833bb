//! Where a pool keeps its things: rules over environment variables, and the checks of a private directory.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::ids::{SessionId, Tag};
use crate::text::{Name, NameError};

/// The pool that is meant where nobody says.
pub const DEFAULT_POOL: &str = "default";
/// The longest name of a pool, in characters: it is part of a socket's path, which is short.
pub const POOL_NAME_MAX: usize = 32;
/// The longest path of a socket in bytes, from the size of `sun_path` less its final NUL.
pub const SOCKET_PATH_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Why there is no path, or why a directory is not to be trusted; each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// `POOL_NAME` or `--pool`.
    #[error("{0:?} is no name of a pool: {1}")]
    PoolName(String, NameError),
    /// The name of a pool is longer than [`POOL_NAME_MAX`].
    #[error("a pool's name has at most {POOL_NAME_MAX} characters: {0:?}")]
    PoolNameLength(String),
    /// A relative path would mean another place in each directory.
    #[error("{name} must be an absolute path, not {}", .path.display())]
    Relative {
        /// The variable.
        name: &'static str,
        /// What it holds.
        path: PathBuf,
    },
    /// Neither a variable nor a home directory.
    #[error("there is no home directory: set HOME or POOL_STATE_DIR")]
    NoHome,
    /// It does not fit a socket address.
    #[error(
        "the socket path {} has {} bytes and the system allows {SOCKET_PATH_MAX}: set POOL_STATE_DIR to a shorter directory",
        .0.display(), .0.as_os_str().len()
    )]
    SocketTooLong(PathBuf),
    /// Not a directory; a symbolic link is not followed.
    #[error("{} is not a directory of its own (it is {kind}): move it away or set POOL_STATE_DIR", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
    },
    /// Another user's.
    #[error("{} belongs to user {uid}, not to you: set POOL_STATE_DIR to a directory of your own", .path.display())]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Others can get in.
    #[error("{0} is open to other users (mode {mode:04o}): run `chmod 700 {0}`", .path.display())]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The system refuses.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What it reports.
        error: io::Error,
    },
}

/// The variables that decide. A program that takes `--pool` or `--socket` puts them in here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Env {
    /// `POOL_NAME`.
    pub pool: Option<OsString>,
    /// `POOL_STATE_DIR`.
    pub state_dir: Option<OsString>,
    /// `POOL_SOCKET`.
    pub socket: Option<OsString>,
    /// `POOL_CONFIG`.
    pub config: Option<OsString>,
    /// `XDG_STATE_HOME`.
    pub xdg_state_home: Option<OsString>,
    /// `XDG_CONFIG_HOME`.
    pub xdg_config_home: Option<OsString>,
    /// The home directory: `HOME`, else the user database's.
    pub home: Option<PathBuf>,
}

impl Env {
    /// Those of this process.
    #[must_use]
    pub fn from_environment() -> Self {
        let var = std::env::var_os;
        Self {
            pool: var("POOL_NAME"),
            state_dir: var("POOL_STATE_DIR"),
            socket: var("POOL_SOCKET"),
            config: var("POOL_CONFIG"),
            xdg_state_home: var("XDG_STATE_HOME"),
            xdg_config_home: var("XDG_CONFIG_HOME"),
            home: std::env::home_dir(),
        }
    }

    /// The pool's name.
    ///
    /// # Errors
    /// A name against the rule of [`Name`], or longer than [`POOL_NAME_MAX`].
    pub fn pool_name(&self) -> Result<Name, PathError> {
        let text = set(self.pool.as_ref()).map_or(DEFAULT_POOL.into(), |name| name.to_string_lossy());
        if text.len() > POOL_NAME_MAX {
            return Err(PathError::PoolNameLength(text.into_owned()));
        }
        text.parse().map_err(|error| PathError::PoolName(text.into_owned(), error))
    }

    /// The pool's state directory: `$POOL_STATE_DIR`, else `tmux-pool/POOL` in `$XDG_STATE_HOME` or
    /// `~/.local/state`.
    ///
    /// # Errors
    /// No home, a relative `POOL_STATE_DIR`, or a pool's name that is none.
    pub fn state_dir(&self) -> Result<PathBuf, PathError> {
        if let Some(dir) = set(self.state_dir.as_ref()) {
            return absolute("POOL_STATE_DIR", dir);
        }
        let base = self.base(self.xdg_state_home.as_ref(), ".local/state")?;
        Ok(base.join("tmux-pool").join(self.pool_name()?.as_str()))
    }

    /// Where `poold` listens: `$POOL_SOCKET`, else `run/poold.sock` in the state directory.
    ///
    /// # Errors
    /// As [`Env::state_dir`], and a path that does not fit a socket address.
    pub fn socket_path(&self) -> Result<PathBuf, PathError> {
        let path = match set(self.socket.as_ref()) {
            Some(path) => absolute("POOL_SOCKET", path)?,
            None => self.state_dir()?.join("run/poold.sock"),
        };
        fits_socket(path)
    }

    /// The configuration file: `$POOL_CONFIG`, else `tmux-pool/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`.
    ///
    /// # Errors
    /// No home, or a relative `POOL_CONFIG`.
    pub fn config_path(&self) -> Result<PathBuf, PathError> {
        if let Some(path) = set(self.config.as_ref()) {
            return absolute("POOL_CONFIG", path);
        }
        Ok(self.base(self.xdg_config_home.as_ref(), ".config")?.join("tmux-pool/config.toml"))
    }

    /// The variable, unless it is relative: the base directory specification says to ignore it then.
    fn base(&self, variable: Option<&OsString>, below_home: &str) -> Result<PathBuf, PathError> {
        if let Some(dir) = set(variable).map(PathBuf::from).filter(|dir| dir.is_absolute()) {
            return Ok(dir);
        }
        let home = self.home.as_ref().filter(|home| home.is_absolute()).ok_or(PathError::NoHome)?;
        Ok(home.join(below_home))
    }
}

/// An empty variable is one that is not set.
fn set(variable: Option<&OsString>) -> Option<&OsString> {
    variable.filter(|value| !value.is_empty())
}

fn absolute(name: &'static str, path: &OsString) -> Result<PathBuf, PathError> {
    let path = PathBuf::from(path);
    if path.is_absolute() { Ok(path) } else { Err(PathError::Relative { name, path }) }
}

fn fits_socket(path: PathBuf) -> Result<PathBuf, PathError> {
    if path.as_os_str().as_bytes().len() > SOCKET_PATH_MAX {
        Err(PathError::SocketTooLong(path))
    } else {
        Ok(path)
    }
}

/// Where everything of one pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The pool's name.
    pub pool: Name,
    /// The state directory, 0700. All else is in it, but for the configuration and a socket given by `POOL_SOCKET`.
    pub state: PathBuf,
    /// Sockets, locks and the files of running incarnations, 0700.
    pub run: PathBuf,
    /// Where `poold` listens.
    pub socket: PathBuf,
    /// Held by the one `poold` of this state directory.
    pub lock: PathBuf,
    /// Held by the one `poolctl up`.
    pub up_lock: PathBuf,
    /// Where the pool's own tmux server listens.
    pub tmux_socket: PathBuf,
    /// The configuration that server is started with.
    pub tmux_conf: PathBuf,
    /// The metadata database.
    pub database: PathBuf,
    /// One directory a session.
    pub sessions: PathBuf,
    /// Logs of the daemons.
    pub logs: PathBuf,
    /// The configuration file; it need not exist.
    pub config: PathBuf,
}

impl Paths {
    /// The paths that these variables stand for. Nothing is looked at or made.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn new(env: &Env) -> Result<Self, PathError> {
        let state = env.state_dir()?;
        let run = state.join("run");
        Ok(Self {
            pool: env.pool_name()?,
            socket: env.socket_path()?,
            lock: run.join("poold.lock"),
            up_lock: run.join("up.lock"),
            tmux_socket: fits_socket(run.join("tmux.sock"))?,
            tmux_conf: state.join("tmux.conf"),
            database: state.join("pool.redb"),
            sessions: state.join("sessions"),
            logs: state.join("log"),
            config: env.config_path()?,
            run,
            state,
        })
    }

    /// The log file of a daemon that is started with one.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// A session's directory.
    #[must_use]
    pub fn session(&self, id: SessionId) -> PathBuf {
        self.sessions.join(id.to_string())
    }

    /// What the pool itself keeps of each session, a directory each: its last screen, its agent's hooks. Not in the
    /// session's own directory, where its program may replace files by anything.
    #[must_use]
    pub fn meta(&self) -> PathBuf {
        self.state.join("meta")
    }

    /// What the pool itself keeps of a session.
    #[must_use]
    pub fn meta_of(&self, id: SessionId) -> PathBuf {
        self.meta().join(id.to_string())
    }

    /// Where archives of removed sessions are.
    #[must_use]
    pub fn archives(&self) -> PathBuf {
        self.state.join("archive")
    }

    /// The job file of an incarnation; see [`crate::job`].
    #[must_use]
    pub fn job(&self, tag: Tag) -> PathBuf {
        self.run.join(format!("{tag}.job"))
    }
}

/// Whether this directory is ours alone: itself a directory, owned by this process's effective user,
/// and closed to everybody else.
///
/// # Errors
/// What is wrong with it, and what to do.
pub fn check_dir(path: &Path) -> Result<(), PathError> {
    let found = fs::symlink_metadata(path).map_err(|error| io_error(path, error))?;
    let path = path.to_owned();
    if !found.is_dir() {
        return Err(PathError::NotADirectory { path, kind: kind(&found) });
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(PathError::Owner { path, uid: found.uid() });
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 { Err(PathError::Mode { path, mode }) } else { Ok(()) }
}

/// Makes the directory, 0700, and those above it that are missing, likewise; then [`check_dir`].
///
/// # Errors
/// As [`check_dir`], and what the system reports.
pub fn prepare_dir(path: &Path) -> Result<(), PathError> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io_error(path, error)),
        _ => check_dir(path),
    }
}

fn io_error(path: &Path, error: io::Error) -> PathError {
    PathError::Io { path: path.to_owned(), error }
}

fn kind(found: &fs::Metadata) -> &'static str {
    if found.is_symlink() {
        "a symbolic link"
    } else if found.is_file() {
        "a file"
    } else {
        "a special file"
    }
}
