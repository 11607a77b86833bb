//! The section of a worker that the pool starts by itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

sections! {
    /// `[workers.NAME]`
    pub struct WorkerSection {
        /// The handler and its arguments, run for each message without a shell, as by `poolctl work`.
        pub command: Vec<String> = Vec::new(),
        /// The kinds of messages that it works; if empty, all but `prompt`.
        pub kinds: Vec<String> = Vec::new(),
        /// The sessions whose messages it works: `all`, names separated by commas, `agent:KIND` and `label:K=V`
        /// (of several, all have to match), or `pool` for a queue of its own (`poolctl send @NAME`).
        pub sessions: String = "all".to_owned(),
        /// Maximum number of handlers at a time for messages of one session, of whatever kinds; 1 by default.
        pub session_concurrency: u32 = 1,
        /// Maximum number of handlers at a time; 4 by default.
        pub concurrency: u32 = 4,
        /// Time without a message after which its host ends; 3m by default.
        pub idle_end: String = "3m".to_owned(),
        /// Time for which a claim holds without a heartbeat, from 1s to 24h, instead of that of `[queue]`.
        pub lease: Option<String> = None,
        /// Run time after which a handler is ended and its attempt has failed; without it, none.
        pub timeout: Option<String> = None,
        /// True to store the first 64 KiB of a handler's output as the message's result; else it is logged.
        pub result: bool = false,
        /// Maximum number of starts after a failure within `[restart] window`, instead of `[restart] max`.
        pub max_restarts: Option<u32> = None,
        /// Workers that get its messages when they fail, in this order, or once it is no longer started.
        pub fallback: Vec<String> = Vec::new(),
        /// Number of attempts after which a message goes to the next of them; 3 by default.
        pub fallback_after: u32 = 3,
        /// Resource limits of its host with all handlers, like `mem=2G,nice=10`.
        pub limits: String = String::new(),
        /// Variables added to the environment of its handlers, which is that of `poold`.
        pub env: BTreeMap<String, String> = BTreeMap::new(),
        /// Absolute working directory of its handlers; if empty, one of its own.
        pub cwd: String = String::new(),
    }
}

impl WorkerSection {
    /// Returns a section with every key, for the check of keys.
    pub(crate) fn full() -> Self {
        Self {
            lease: Some(String::new()),
            timeout: Some(String::new()),
            max_restarts: Some(0),
            ..Self::default()
        }
    }
}
