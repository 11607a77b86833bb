//! Reaping: which processes and panes should be dead. The rules are in [`crate::stale`]; here they are asked with everything
//! that is known, and their findings become facts.

pub(crate) mod facts;
pub(crate) mod judge;
pub(crate) mod retired_tags;
pub(crate) mod state;

pub use facts::{candidates, named, with_facts, with_signs, with_slot_facts};
pub use judge::{force, judge, leased, note_silent_workers, report, report_server, settled, would_end};
pub use retired_tags::UnseenTags;
pub use state::{Reaping, counts};
