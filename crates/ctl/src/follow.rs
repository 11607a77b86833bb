//! A stream of frames that survives the daemon's restart: where it is cut, another connection goes on.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use protocol::blocking::Connection;
use protocol::{ErrorCode, Frame, Refusal, Request, Role, TransportError};

use crate::client::{Client, Patience};
use crate::context::Context;
use crate::error::Error;
use crate::show::out;

/// Time between two tries to reach a daemon that is away.
const AWAY: Duration = Duration::from_millis(250);

/// What is followed, and what becomes of it.
pub(crate) trait Follower {
    /// What to ask for on a new connection.
    fn request(&self) -> Request;

    /// Whether a daemon that was reached once is waited for however long it is away.
    fn persists(&self) -> bool {
        false
    }

    /// Whether all has come: nothing more follows, and following is done.
    fn is_over(&self) -> bool {
        false
    }

    /// Takes the next frame. `Break` where another connection is to go on.
    ///
    /// # Errors
    /// Why following ends.
    fn take(&mut self, frame: Frame) -> Result<ControlFlow<()>, Error>;
}

/// Follows until all has come, or there is a reason not to go on.
///
/// # Errors
/// The follower's own; the daemon's refusal, or that it is lost for good; and a closed pipe as soon
/// as nobody reads standard output any more.
pub(crate) fn follow(
    context: &Context,
    mut client: Client,
    follower: &mut impl Follower,
) -> Result<(), Error> {
    let mut patience = Patience::new(context.waiting_limit());
    let mut told = context.style.quiet;
    loop {
        let began = Instant::now();
        match stream(&mut client, follower, &patience) {
            Err(Cut::Passing(_)) if follower.persists() && patience.left() != Some(Duration::ZERO) => {
                if !std::mem::replace(&mut told, true) {
                    out::note("poolctl: the connection to poold was lost; this goes on when it is back");
                }
                pause(patience.left().map_or(AWAY, |left| left.min(AWAY)))?;
            }
            Err(Cut::Passing(_)) if patience.again(began) => {}
            Err(Cut::Passing(refusal)) => return Err(refusal.into()),
            Err(Cut::Final(error)) => return Err(error),
            Ok(()) if follower.is_over() => return Ok(()),
            Ok(()) => {}
        }
    }
}

/// Lets some time pass, unless nobody reads standard output any more.
fn pause(time: Duration) -> Result<(), Error> {
    let stdout = io::stdout();
    let fds = &mut [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    wait(fds, Some(time))?;
    has_reader(&fds[0])
}

/// That its reader is gone is always reported.
fn has_reader(stdout: &PollFd<'_>) -> Result<(), Error> {
    let gone = has(stdout, PollFlags::POLLERR | PollFlags::POLLHUP);
    if gone { Err(Error::Output(io::ErrorKind::BrokenPipe.into())) } else { Ok(()) }
}

/// One connection. `Ok` where another is to go on at once, or all has come.
fn stream(client: &mut Client, follower: &mut impl Follower, patience: &Patience) -> Result<(), Cut> {
    let mut connection = client.connect(Role::Subscriber, patience.left()).map_err(|error| {
        let refusal = error.refusal();
        if client.may_come_back(&error) { Cut::Passing(refusal) } else { Cut::Final(refusal.into()) }
    })?;
    connection.send(follower.request())?;
    loop {
        match next(&mut connection, patience.left())? {
            Frame::Reply { reply: Err(refusal), .. } => return Err(Cut::Final(refusal.into())),
            frame => {
                if follower.take(frame)?.is_break() || follower.is_over() {
                    return Ok(());
                }
            }
        }
    }
}

fn next(connection: &mut Connection, left: Option<Duration>) -> Result<Frame, Cut> {
    if let Some(frame) = arrived(connection)? {
        return Ok(frame);
    }
    let stdout = io::stdout();
    let fds = &mut [
        PollFd::new(connection.as_fd(), PollFlags::POLLIN),
        PollFd::new(stdout.as_fd(), PollFlags::empty()),
    ];
    wait(fds, left)?;
    has_reader(&fds[1])?;
    connection.set_timeout(left);
    Ok(connection.next_frame()?)
}

/// A frame that was read already, along with the one before.
///
/// # Errors
/// See [`TransportError`].
pub(crate) fn arrived(connection: &mut Connection) -> Result<Option<Frame>, TransportError> {
    connection.set_timeout(Some(Duration::ZERO));
    match connection.next_frame() {
        Ok(frame) => Ok(Some(frame)),
        Err(TransportError::Timeout) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits until one of them is ready, or the time is over; sometimes for less.
///
/// # Errors
/// The system has no means to wait.
pub(crate) fn wait(fds: &mut [PollFd<'_>], left: Option<Duration>) -> Result<(), Error> {
    let timeout = left.map_or(PollTimeout::NONE, |left| {
        // One millisecond more than what is left of them, so as not to end just before.
        PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX)
    });
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(Refusal::new(ErrorCode::Failed, format!("cannot wait: {error}")).into()),
    }
}

/// Whether one of these was found at a descriptor.
#[must_use]
pub(crate) fn has(fd: &PollFd<'_>, flags: PollFlags) -> bool {
    fd.revents().is_some_and(|found| found.intersects(flags))
}

/// Why a stream ended.
enum Cut {
    /// As it does while the daemon restarts.
    Passing(Refusal),
    /// Trying again would not help.
    Final(Error),
}

impl From<Error> for Cut {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl From<TransportError> for Cut {
    fn from(error: TransportError) -> Self {
        let refusal = error.refusal();
        match error {
            TransportError::Closed | TransportError::Io(_) => Self::Passing(refusal),
            TransportError::Timeout | TransportError::Frame(_) => Self::Final(refusal.into()),
        }
    }
}
