//! One run of a session in tmux.

use serde::{Deserialize, Serialize};

use crate::ids::{PaneId, ProcId, ServerId, Tag, TmuxSessionId};
use crate::text::OsBytes;
use crate::time::Timestamp;

/// One run of a session in tmux.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// The random tag.
    pub tag: Tag,
    /// The tmux server, if known.
    pub server: Option<ServerId>,
    /// The tmux session, if known.
    pub session: Option<TmuxSessionId>,
    /// The pane that the pool owns, if known.
    pub pane: Option<PaneId>,
    /// The process of the pane (`reaper exec`), if known.
    pub init: Option<ProcId>,
    /// The process of the agent, if known.
    pub agent: Option<ProcId>,
    /// The time at which its start was decided.
    pub started_at: Timestamp,
    /// Time since which complete listings lack it, as long as that does not prove that it is gone.
    pub missing_since: Option<Timestamp>,
    /// True if its terminal was closed (`pane_dead`).
    pub dead: bool,
    /// The control group, if it has one.
    pub cgroup: Option<OsBytes>,
    /// Limits that could not be enforced, each with the reason, as sentences.
    #[serde(default)]
    pub unenforced: Vec<String>,
    /// True if it resumed the conversation of an earlier incarnation.
    #[serde(default)]
    pub resumed: bool,
}

impl Incarnation {
    /// Creates an incarnation that is to be started.
    pub fn intended(tag: Tag, started_at: Timestamp) -> Self {
        Self {
            tag,
            server: None,
            session: None,
            pane: None,
            init: None,
            agent: None,
            started_at,
            missing_since: None,
            dead: false,
            cgroup: None,
            unenforced: Vec::new(),
            resumed: false,
        }
    }

    /// True if it was adopted. Its program has no init of the pool; `init` and `agent` are the same process.
    pub fn is_adopted(&self) -> bool {
        self.init.is_some() && self.init == self.agent
    }
}
