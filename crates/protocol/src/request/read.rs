//! Requests that change nothing.

use super::Request;

impl Request {
    /// True if the request changes nothing, so that nothing is in doubt without an answer.
    pub fn is_read(&self) -> bool {
        let follows = matches!(self, Self::Subscribe(_) | Self::Watch | Self::Output(_) | Self::Wait(_));
        let lists = matches!(
            self,
            Self::List(_)
                | Self::Snapshot(_)
                | Self::Inbox
                | Self::ListMessages(_)
                | Self::Messages(_)
                | Self::Events(_)
                | Self::Generators
                | Self::Candidates
        );
        let shows = matches!(
            self,
            Self::Show(_)
                | Self::ShowMessage(_)
                | Self::Body(_)
                | Self::Logs(_)
                | Self::Capture(_)
                | Self::Terminal(_)
                | Self::Usage(_)
                | Self::Explain(_)
        );
        let of_pool = matches!(
            self,
            Self::Ping | Self::Status | Self::Config | Self::Sync | Self::Check | Self::Export
        );
        follows || lists || shows || of_pool
    }
}
