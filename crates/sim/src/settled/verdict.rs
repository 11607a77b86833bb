//! The result of a comparison that found something.

pub(super) enum Verdict {
    /// Something has not settled yet.
    Pending(String),
    Broken(String),
}
