//! How connecting and calling fail, short of a refusal: one sentence and one code for each.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::frame::FrameError;
use crate::hello::{OLDEST_VERSION, VERSION, Welcome};
use crate::peer::PeerError;
use crate::refusal::{ErrorCode, Refusal};

/// How long a connection and its welcome may take where the caller does not say: a daemon that
/// starts opens its database first, which stays below it even after a crash at a million rows.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a daemon lets a connection take for its hello.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two tries while the daemon's queue of connections is full.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No socket there, or nobody listens at it.
    #[error("no poold answers at {}: start the pool with `poolctl up`", .0.display())]
    NotThere(PathBuf),
    /// The file system refuses it.
    #[error("permission to use {} is denied: it belongs to another user", .0.display())]
    Forbidden(PathBuf),
    /// What listens there runs as another user. Nothing was sent to it.
    #[error("{} is served by user {uid}, not by you: nothing was sent", .path.display())]
    ForeignServer {
        /// The socket.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// The daemon said no to the hello.
    #[error("{0}")]
    Refused(Refusal),
    /// The daemon's welcome is of a version that is not understood here.
    #[error("poold {build} speaks protocol {version}, this program {OLDEST_VERSION} to {VERSION}: {}", older(*.version))]
    Version {
        /// The version it welcomed.
        version: u16,
        /// Its build.
        build: String,
    },
    /// Not the protocol.
    #[error("what listens at {} is no poold: {error}", .path.display())]
    Frame {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        error: FrameError,
    },
    /// It closed the connection before its welcome: it is ending, or has too many connections.
    #[error("poold at {} closed the connection before its welcome; try again", .0.display())]
    Closed(PathBuf),
    /// No answer in time.
    #[error("poold at {} does not answer", .0.display())]
    Timeout(PathBuf),
    /// Anything else that the system reports.
    #[error("cannot connect to {}: {error}", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What it reports.
        error: io::Error,
    },
}

fn older(version: u16) -> &'static str {
    if version < OLDEST_VERSION { "upgrade poold" } else { "upgrade this program" }
}

impl ConnectError {
    /// The code under which `poolctl` reports it.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(refusal) => refusal.code,
            Self::Version { .. } | Self::Frame { .. } => ErrorCode::Protocol,
            _ => ErrorCode::Unavailable,
        }
    }

    /// The code and the sentence.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        Refusal::new(self.code(), self.to_string())
    }

    /// Whether a daemon that restarts looks like this, so that trying again makes sense.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::NotThere(_) | Self::Closed(_) | Self::Timeout(_))
    }

    pub(crate) fn from_io(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::NotThere(path),
            io::ErrorKind::PermissionDenied => Self::Forbidden(path),
            io::ErrorKind::TimedOut => Self::Timeout(path),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::UnexpectedEof => Self::Closed(path),
            _ => Self::Io { path, error },
        }
    }

    pub(crate) fn from_peer(path: &Path, error: PeerError) -> Self {
        match error {
            PeerError::Foreign(uid) => Self::ForeignServer { path: path.to_owned(), uid },
            PeerError::Io(error) => Self::from_io(path, error),
        }
    }

    pub(crate) fn from_transport(path: &Path, error: TransportError) -> Self {
        match error {
            TransportError::Closed => Self::Closed(path.to_owned()),
            TransportError::Timeout => Self::Timeout(path.to_owned()),
            TransportError::Io(error) => Self::from_io(path, error),
            TransportError::Frame(error) => Self::Frame { path: path.to_owned(), error },
        }
    }
}

/// A welcome whose version this program speaks.
pub(crate) fn accept(answer: Result<Welcome, Refusal>) -> Result<Welcome, ConnectError> {
    let welcome = answer.map_err(ConnectError::Refused)?;
    if (OLDEST_VERSION..=VERSION).contains(&welcome.version) {
        Ok(welcome)
    } else {
        Err(ConnectError::Version { version: welcome.version, build: welcome.build })
    }
}

/// Why a call has no answer. Whether it was carried out is not known: a mutating call is repeated
/// under the same operation id.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The daemon went away.
    #[error("the connection to poold was lost; what was asked may have been done")]
    Closed,
    /// No answer in time.
    #[error("poold did not answer in time; what was asked may still be done")]
    Timeout,
    /// Not the protocol, or more than a frame holds.
    #[error("{0}")]
    Frame(FrameError),
    /// Anything else that the system reports.
    #[error("the connection to poold failed: {0}")]
    Io(io::Error),
}

impl TransportError {
    /// The code under which `poolctl` reports it.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Closed | Self::Io(_) => ErrorCode::Unavailable,
            Self::Timeout => ErrorCode::Timeout,
            Self::Frame(error) => error.code(),
        }
    }

    /// The code and the sentence.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        Refusal::new(self.code(), self.to_string())
    }
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected => {
                Self::Closed
            }
            _ => Self::Io(error),
        }
    }
}

impl From<FrameError> for TransportError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Io(error) => error.into(),
            FrameError::Truncated => Self::Closed,
            error => Self::Frame(error),
        }
    }
}
