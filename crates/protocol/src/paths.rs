//! The paths of a pool, derived from environment variables, and the checks of private directories.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::ids::{SessionId, Tag};
use crate::text::{Name, NameError};

/// The pool's name if none is given.
pub const DEFAULT_POOL: &str = "default";
/// Maximum length of a pool's name, in characters. The name is part of a socket's path, which is short.
pub const POOL_NAME_MAX: usize = 32;
/// Maximum length of a socket's path, in bytes: the size of `sun_path` without the final NUL.
pub const SOCKET_PATH_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The socket in the state directory, unless `POOL_SOCKET` names another one.
const OWN_SOCKET: &str = "run/poold.sock";

/// Errors of paths and directories. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// `POOL_NAME` or `--pool` is invalid.
    #[error("{0:?} is no name of a pool: {1}")]
    PoolName(String, NameError),
    /// The pool's name is longer than [`POOL_NAME_MAX`].
    #[error("a pool's name has at most {POOL_NAME_MAX} characters: {0:?}")]
    PoolNameLength(String),
    /// A path is relative, so it would depend on the working directory.
    #[error("{name} must be an absolute path, not {}", .path.display())]
    Relative {
        /// The variable.
        name: &'static str,
        /// The value of the variable.
        path: PathBuf,
    },
    /// Neither a variable nor a home directory is set.
    #[error("there is no home directory: set HOME or POOL_STATE_DIR")]
    NoHome,
    /// The socket's path does not fit a socket address.
    #[error(
        "the socket path {} has {} bytes and the system allows {SOCKET_PATH_MAX}: set POOL_STATE_DIR to a shorter directory",
        .0.display(), .0.as_os_str().len()
    )]
    SocketTooLong(PathBuf),
    /// The path is no directory. Symbolic links are not followed.
    #[error("{} is not a directory of its own (it is {kind}): move it away or set POOL_STATE_DIR", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
        /// The actual type of the file.
        kind: &'static str,
    },
    /// The directory belongs to another user.
    #[error("{} belongs to user {uid}, not to you: set POOL_STATE_DIR to a directory of your own", .path.display())]
    Owner {
        /// The directory.
        path: PathBuf,
        /// The owner's user id.
        uid: u32,
    },
    /// Other users have access to the directory.
    #[error("{0} is open to other users (mode {mode:04o}): run `chmod 700 {0}`", .path.display())]
    Mode {
        /// The directory.
        path: PathBuf,
        /// The permission bits.
        mode: u32,
    },
    /// An error of the operating system.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The environment variables that determine the paths. Programs put their `--pool` and `--socket` options
/// here.
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
    /// The home directory: `HOME`, else that of the user database.
    pub home: Option<PathBuf>,
}

impl Env {
    /// Reads the variables of this process.
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

    /// Returns the pool's name.
    ///
    /// # Errors
    /// A name that violates the rule of [`Name`] or is longer than [`POOL_NAME_MAX`].
    pub fn pool_name(&self) -> Result<Name, PathError> {
        let text = set(self.pool.as_ref()).map_or(DEFAULT_POOL.into(), |name| name.to_string_lossy());
        if text.len() > POOL_NAME_MAX {
            return Err(PathError::PoolNameLength(text.into_owned()));
        }
        text.parse().map_err(|error| PathError::PoolName(text.into_owned(), error))
    }

    /// Returns the pool's state directory: `$POOL_STATE_DIR`, else `tmux-pool/POOL` in `$XDG_STATE_HOME` or
    /// `~/.local/state`.
    ///
    /// # Errors
    /// No home directory, a relative `POOL_STATE_DIR`, or an invalid pool name.
    pub fn state_dir(&self) -> Result<PathBuf, PathError> {
        if let Some(dir) = set(self.state_dir.as_ref()) {
            return absolute("POOL_STATE_DIR", dir);
        }
        let base = self.base(self.xdg_state_home.as_ref(), ".local/state")?;
        Ok(base.join("tmux-pool").join(self.pool_name()?.as_str()))
    }

    /// Returns the path of `poold`'s socket: `$POOL_SOCKET`, else `run/poold.sock` in the state directory.
    ///
    /// # Errors
    /// As [`Env::state_dir`], and a path that does not fit a socket address.
    pub fn socket_path(&self) -> Result<PathBuf, PathError> {
        let path = match set(self.socket.as_ref()) {
            Some(path) => absolute("POOL_SOCKET", path)?,
            None => self.state_dir()?.join(OWN_SOCKET),
        };
        fits_socket(path)
    }

    /// Returns the configuration file: `$POOL_CONFIG`, else `tmux-pool/config.toml` in `$XDG_CONFIG_HOME` or
    /// `~/.config`.
    ///
    /// # Errors
    /// No home directory, or a relative `POOL_CONFIG`.
    pub fn config_path(&self) -> Result<PathBuf, PathError> {
        if let Some(path) = set(self.config.as_ref()) {
            return absolute("POOL_CONFIG", path);
        }
        Ok(self.base(self.xdg_config_home.as_ref(), ".config")?.join("tmux-pool/config.toml"))
    }

    /// Returns the XDG directory. A relative one is ignored, as the base directory specification requires.
    fn base(&self, variable: Option<&OsString>, below_home: &str) -> Result<PathBuf, PathError> {
        if let Some(dir) = set(variable).map(PathBuf::from).filter(|dir| dir.is_absolute()) {
            return Ok(dir);
        }
        let home = self.home.as_ref().filter(|home| home.is_absolute()).ok_or(PathError::NoHome)?;
        Ok(home.join(below_home))
    }
}

/// True if both are paths of one directory, or of a file in it, however they are written: one may lead through a
/// symbolic link, but not under another name. A file itself need not exist.
pub fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || one.file_name() == other.file_name()
            && resolved(one).is_some_and(|one| resolved(other) == Some(one))
}

fn resolved(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)))
}

/// Treats an empty variable as unset.
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

/// All paths of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The pool's name.
    pub pool: Name,
    /// The state directory, 0700. It contains everything else except the configuration and a socket set by
    /// `POOL_SOCKET`.
    pub state: PathBuf,
    /// Sockets, locks and the files of running incarnations, 0700.
    pub run: PathBuf,
    /// The socket of `poold`.
    pub socket: PathBuf,
    /// Lock held by the only `poold` of this state directory.
    pub lock: PathBuf,
    /// Lock held by the only `poolctl up`.
    pub up_lock: PathBuf,
    /// The socket of the pool's own tmux server.
    pub tmux_socket: PathBuf,
    /// The configuration of that server.
    pub tmux_conf: PathBuf,
    /// The metadata database.
    pub database: PathBuf,
    /// One directory for each session.
    pub sessions: PathBuf,
    /// Log files of the daemons.
    pub logs: PathBuf,
    /// The configuration file, which need not exist.
    pub config: PathBuf,
}

impl Paths {
    /// The variables by which what runs for the pool finds it.
    pub fn variables(&self) -> [(&'static str, &OsStr); 3] {
        [
            ("POOL_NAME", self.pool.as_str().as_ref()),
            ("POOL_SOCKET", self.socket.as_os_str()),
            ("POOL_STATE_DIR", self.state.as_os_str()),
        ]
    }

    /// Derives the paths from the variables, without accessing the file system.
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

    /// Returns the socket of a `poold` of this state directory that was started without `POOL_SOCKET`.
    pub fn own_socket(&self) -> PathBuf {
        self.state.join(OWN_SOCKET)
    }

    /// Returns the log file of a daemon.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Returns a session's directory.
    pub fn session(&self, id: SessionId) -> PathBuf {
        self.sessions.join(id.to_string())
    }

    /// Returns the directory of a session's log.
    pub fn logs_of(&self, id: SessionId) -> PathBuf {
        self.session(id).join("logs")
    }

    /// Returns the directory of the pool's own data about sessions: last screens and agents' hooks. It is
    /// outside of the sessions' directories, because a session's program can replace any file in its own.
    pub fn meta(&self) -> PathBuf {
        self.state.join("meta")
    }

    /// Returns the directory of the pool's own data about one session.
    pub fn meta_of(&self, id: SessionId) -> PathBuf {
        self.meta().join(id.to_string())
    }

    /// Returns the directory of the archives of removed sessions.
    pub fn archives(&self) -> PathBuf {
        self.state.join("archive")
    }

    /// Returns the job file of an incarnation; see [`crate::job`].
    pub fn job(&self, tag: Tag) -> PathBuf {
        self.run.join(format!("{tag}.job"))
    }
}

/// Checks that a directory is private: it is itself a directory (no symbolic link), owned by this process's
/// effective user and closed to everybody else.
///
/// # Errors
/// The violated condition and what to do about it.
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

/// Creates a directory and its missing parents with mode 0700, then checks it as [`check_dir`] does.
///
/// # Errors
/// As [`check_dir`], or an error of the operating system.
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
