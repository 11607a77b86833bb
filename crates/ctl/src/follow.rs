//! A stream of frames that survives the daemon's restart: it continues on a new connection.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use protocol::blocking::Connection;
use protocol::{Frame, Refusal, Request, Role, TransportError};

use crate::client::RetryLimit;
use crate::show::out;
use crate::{Client, Context, Error, poll};

/// Interval between attempts to reach a daemon that was reached before.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The consumer of a stream.
pub(crate) trait Follower {
    /// The request on a new connection, for the rest of the stream.
    fn request(&self) -> Request;

    /// True if a daemon that was reached once is waited for without a time limit.
    fn persists(&self) -> bool {
        false
    }

    /// True if the stream is complete.
    fn is_over(&self) -> bool {
        false
    }

    /// Handles the next frame. Returns `Break` to continue on another connection.
    fn take(&mut self, frame: Frame) -> Result<ControlFlow<()>, Error>;
}

/// Follows a stream until it is complete.
///
/// # Errors
/// The follower's error; a refusal or the loss of the daemon; a closed standard output, which is noticed at
/// once.
pub(crate) fn follow(
    context: &Context,
    mut client: Client,
    follower: &mut impl Follower,
) -> Result<(), Error> {
    let mut limit = RetryLimit::new(context.waiting_limit());
    let mut noted = context.style.quiet;
    loop {
        let began = Instant::now();
        match stream(&mut client, follower, &mut limit) {
            Err(end @ (StreamEnd::Lost(_) | StreamEnd::Unreached(_)))
                if follower.persists() && limit.left() != Some(Duration::ZERO) =>
            {
                // poold also ends connections whose readers are too slow, while it keeps running.
                let is_down = matches!(end, StreamEnd::Unreached(_));
                if is_down && !std::mem::replace(&mut noted, true) {
                    out::note("poolctl: lost the connection to poold; this continues once poold runs again");
                }
                poll::pause(limit.left().map_or(RETRY_INTERVAL, |left| left.min(RETRY_INTERVAL)))?;
            }
            Err(StreamEnd::Lost(_) | StreamEnd::Unreached(_)) if limit.wait_to_retry(began) => {}
            Err(StreamEnd::Lost(refusal) | StreamEnd::Unreached(refusal)) => return Err(refusal.into()),
            Err(StreamEnd::Final(error)) => return Err(error),
            Ok(()) if follower.is_over() => return Ok(()),
            Ok(()) => {}
        }
    }
}

/// Follows on one connection. Returns `Ok` to continue on another one at once, or when the stream is
/// complete.
fn stream(
    client: &mut Client,
    follower: &mut impl Follower,
    limit: &mut RetryLimit,
) -> Result<(), StreamEnd> {
    let mut connection = client.connect(Role::Subscriber, limit.left()).map_err(|error| {
        if client.may_come_back(&error) {
            StreamEnd::Unreached(error.refusal())
        } else {
            StreamEnd::Final(client.refusal(&error).into())
        }
    })?;
    connection.send(follower.request())?;
    loop {
        match next(&mut connection, limit)? {
            Frame::Reply { reply: Err(refusal), .. } => return Err(StreamEnd::Final(refusal.into())),
            frame => {
                limit.answered();
                if follower.take(frame)?.is_break() || follower.is_over() {
                    return Ok(());
                }
            }
        }
    }
}

fn next(connection: &mut Connection, limit: &RetryLimit) -> Result<Frame, StreamEnd> {
    // Checked first, so that the limit also ends a stream from which frames come all the time.
    if limit.left() == Some(Duration::ZERO) {
        return Err(TransportError::Timeout.into());
    }
    if let Some(frame) = arrived(connection)? {
        return Ok(frame);
    }
    let stdout = io::stdout();
    let fds = &mut [
        PollFd::new(connection.as_fd(), PollFlags::POLLIN),
        PollFd::new(stdout.as_fd(), PollFlags::empty()),
    ];
    poll::wait(fds, limit.left()).map_err(Error::from)?;
    poll::has_reader(&fds[1])?;
    connection.set_timeout(limit.left());
    Ok(connection.next_frame()?)
}

/// Returns a frame if one has arrived, perhaps together with the one before.
pub(crate) fn arrived(connection: &mut Connection) -> Result<Option<Frame>, TransportError> {
    connection.set_timeout(Some(Duration::ZERO));
    match connection.next_frame() {
        Ok(frame) => Ok(Some(frame)),
        Err(TransportError::Timeout) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The reason for which a connection ended.
enum StreamEnd {
    /// Retrying helps: no daemon was reached, as during its restart.
    Unreached(Refusal),
    /// Retrying helps: the connection was lost.
    Lost(Refusal),
    /// Retrying does not help.
    Final(Error),
}

impl From<Error> for StreamEnd {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl From<TransportError> for StreamEnd {
    fn from(error: TransportError) -> Self {
        let refusal = error.refusal();
        match error {
            TransportError::Closed | TransportError::Io(_) => Self::Lost(refusal),
            // The limit is that of the whole stream.
            TransportError::Timeout => Self::Final(Error::timeout("timed out")),
            TransportError::Frame(_) => Self::Final(refusal.into()),
        }
    }
}
