//! Errors of connecting and calling other than refusals. Each has an error code and a sentence for people.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::frame::{FRAME_MAX, FrameError};
use crate::hello::{Hello, HelloReply, OLDEST_VERSION, VERSION, Welcome};
use crate::peer::PeerError;
use crate::refusal::{ErrorCode, Refusal};

/// Default timeout of a connection including its welcome. A starting daemon opens its database first, which
/// takes less time than this even after a crash at a million rows.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a daemon allows a new connection for its hello.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts while the daemon's backlog is full.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// The reasons why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no socket, or nobody listens on it.
    #[error("no poold answers at {}: start the pool with `poolctl up`", .0.display())]
    NotThere(PathBuf),
    /// The file system denies access to the socket.
    #[error("permission to use {} is denied: it belongs to another user", .0.display())]
    Forbidden(PathBuf),
    /// The listening process runs as another user. Nothing was sent to it.
    #[error("{} is served by user {uid}, not by you: nothing was sent", .path.display())]
    ForeignServer {
        /// The socket.
        path: PathBuf,
        /// The user id of the listening process.
        uid: u32,
    },
    /// The daemon refused the hello.
    #[error("{0}")]
    Refused(Refusal),
    /// The daemon's welcome has a protocol version that this program does not speak.
    #[error(
        "{build} speaks protocol {version}, {program} {OLDEST_VERSION} to {VERSION}: upgrade {}",
        older(*.version, .build, .program)
    )]
    Version {
        /// The version in the welcome.
        version: u16,
        /// The daemon's name and version.
        build: String,
        /// The name and version of this program.
        program: String,
    },
    /// The peer does not speak this protocol.
    #[error("what listens at {} is no poold: {error}", .path.display())]
    Frame {
        /// The socket.
        path: PathBuf,
        /// The protocol error.
        error: FrameError,
    },
    /// The daemon closed the connection before its welcome: it is shutting down or has too many connections.
    #[error("poold at {} closed the connection before its welcome; try again", .0.display())]
    Closed(PathBuf),
    /// No answer arrived in time.
    #[error("poold at {} does not answer", .0.display())]
    Timeout(PathBuf),
    /// Any other error of the operating system.
    #[error("cannot connect to {}: {error}", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The side that speaks the older protocol.
fn older<'a>(version: u16, build: &'a str, program: &'a str) -> &'a str {
    if version < OLDEST_VERSION { build } else { program }
}

impl ConnectError {
    /// Returns the code under which `poolctl` reports the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(refusal) => refusal.code,
            Self::Version { .. } | Self::Frame { .. } => ErrorCode::Protocol,
            _ => ErrorCode::Unavailable,
        }
    }

    /// Returns the code and the sentence as a refusal.
    pub fn refusal(&self) -> Refusal {
        Refusal::new(self.code(), self.to_string())
    }

    /// True if a restart of the daemon can cause the error, so that a retry makes sense.
    pub fn is_transient(&self) -> bool {
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

/// Checks that this program, which sent the hello, speaks the version of the welcome.
pub(crate) fn accept(hello: &Hello, answer: HelloReply) -> Result<Welcome, ConnectError> {
    let welcome = answer.map_err(ConnectError::Refused)?;
    if (OLDEST_VERSION..=VERSION).contains(&welcome.version) {
        Ok(welcome)
    } else {
        let (version, build) = (welcome.version, welcome.build);
        Err(ConnectError::Version { version, build, program: hello.build.clone() })
    }
}

/// The reasons why a call has no answer. The daemon may or may not have carried it out: a mutating call is
/// retried with the same operation id.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The daemon closed the connection.
    #[error("the connection to poold was lost; what was asked may have been done")]
    Closed,
    /// No answer arrived in time.
    #[error("poold did not answer in time; what was asked may still be done")]
    Timeout,
    /// Bytes that are not this protocol, or a value that does not fit a frame.
    #[error("{0}")]
    Frame(FrameError),
    /// Any other error of the operating system.
    #[error("the connection to poold failed: {0}")]
    Io(io::Error),
}

impl TransportError {
    /// Returns the code under which `poolctl` reports the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Closed | Self::Io(_) => ErrorCode::Unavailable,
            Self::Timeout => ErrorCode::Timeout,
            Self::Frame(error) => error.code(),
        }
    }

    /// Returns the code and the sentence as a refusal.
    pub fn refusal(&self) -> Refusal {
        Refusal::new(self.code(), self.to_string())
    }

    /// Returns [`TransportError::refusal`] for a request that, if it is a read, has changed nothing.
    pub fn refusal_of(&self, is_read: bool) -> Refusal {
        match self {
            Self::Closed if is_read => {
                Refusal::new(self.code(), "the connection to poold was lost before it answered")
            }
            Self::Timeout if is_read => Refusal::new(self.code(), "poold did not answer in time"),
            // No answer is as long.
            Self::Frame(FrameError::TooLong(bytes)) => Refusal::usage(format!(
                "the request has {bytes} bytes, and {FRAME_MAX} fit: put long texts into files; --clean-env of `new` leaves \
                 most of the environment out"
            )),
            _ => self.refusal(),
        }
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
