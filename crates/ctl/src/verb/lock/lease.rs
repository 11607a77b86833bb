//! The requests that keep and release a lock, and the answers that mean its loss.

use protocol::reply::Locked;
use protocol::{ErrorCode, Request};

use crate::Error;

/// Renews the lease.
pub(super) fn renew(locked: &Locked) -> Request {
    Request::RenewLock { session: locked.session, token: locked.token }
}

/// Releases the lock.
pub(super) fn unlock(locked: &Locked) -> Request {
    Request::Unlock { session: locked.session, token: locked.token }
}

/// True if the lock is held by another holder, or by none.
pub(super) fn is_lost(error: &Error) -> bool {
    error.code() == ErrorCode::Conflict
}

/// True if the session does not exist any more.
pub(super) fn is_removed(error: &Error) -> bool {
    error.code() == ErrorCode::NotFound
}
