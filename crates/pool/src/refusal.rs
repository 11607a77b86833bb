//! Refusals of requests.

use protocol::{ErrorCode, Refusal};

/// Refuses a request, with a sentence for the user: what is wrong, and what to do.
pub(crate) fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(code, message))
}
