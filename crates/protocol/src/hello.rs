//! The first frame each way. These two types never change, so that any two versions can at least
//! tell each other which side to upgrade.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Seq};
use crate::refusal::{ErrorCode, Refusal};

/// "Pool", so that a stranger's bytes are told from ours.
pub const MAGIC: u32 = 0x506f_6f6c;
/// This protocol's version. Grows with every change of what is sent, as a test compares with `tests/golden/versions.txt`;
/// the version before keeps working.
pub const VERSION: u16 = 2;
/// The oldest version that is still understood. Before 2 several shapes had one number, so none of them is.
pub const OLDEST_VERSION: u16 = 2;

/// What a peer says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u32,
    /// The version it speaks.
    pub version: u16,
    /// What it wants to be.
    pub role: Role,
    /// The pool it means, or empty for whichever listens here.
    pub pool: String,
    /// Its name and version, for people.
    pub build: String,
}

impl Hello {
    /// A hello of this build.
    #[must_use]
    pub fn new(role: Role, pool: &str, build: &str) -> Self {
        Self { magic: MAGIC, version: VERSION, role, pool: pool.to_owned(), build: build.to_owned() }
    }

    /// The version that both speak: the smaller one. For the daemon of `pool`.
    ///
    /// # Errors
    /// The refusal to send: not this protocol, another pool, or which side to upgrade.
    pub fn check(&self, pool: &str) -> Result<u16, Refusal> {
        let refuse = |message: String| Err(Refusal::new(ErrorCode::Protocol, message));
        let name = self.build.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
        if self.magic != MAGIC {
            return refuse("this is the socket of poold, and that is not its protocol".to_owned());
        }
        if self.version < OLDEST_VERSION {
            let spoken = self.version;
            return refuse(format!(
                "{name} speaks protocol {spoken}, poold {OLDEST_VERSION} to {VERSION}: upgrade {name}"
            ));
        }
        if !self.pool.is_empty() && self.pool != pool {
            return refuse(format!(
                "this is pool {pool:?}, not {:?}: check POOL_NAME and POOL_SOCKET",
                self.pool
            ));
        }
        Ok(self.version.min(VERSION))
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sends requests.
    Client,
    /// Sends observations of tmux. One at a time.
    Watcher,
    /// Asks for candidates and reports verdicts; may send a client's reads too.
    Reaper,
    /// Works messages.
    Generator,
    /// Receives the state, then events.
    Subscriber,
    /// A watcher that takes the place of the one there is, which is sent away.
    NextWatcher,
}

/// What answers a hello.
pub type HelloReply = Result<Welcome, Refusal>;

/// The answer to a hello that fits; else a [`crate::Refusal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that both speak.
    pub version: u16,
    /// The daemon's start.
    pub epoch: Epoch,
    /// The last event committed.
    pub seq: Seq,
    /// The daemon's name and version, for people.
    pub build: String,
    /// Words for what this daemon can do beyond its version.
    pub capabilities: Vec<String>,
}
