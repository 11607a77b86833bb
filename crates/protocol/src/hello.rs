//! The first frame in each direction. These types never change, so that any two versions can at least tell
//! each other which side to upgrade.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Seq};
use crate::refusal::Refusal;

/// "Pool": distinguishes this protocol from other bytes.
pub const MAGIC: u32 = 0x506f_6f6c;
/// The protocol version. It grows with every change of the encoding (a test compares with
/// `tests/golden/versions.txt`); the previous version continues to work.
pub const VERSION: u16 = 2;
/// The oldest version accepted. Version 1 is not: several encodings had that number.
pub const OLDEST_VERSION: u16 = 2;

/// The first frame of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u32,
    /// The newest version that the client speaks.
    pub version: u16,
    /// The role that the client wants.
    pub role: Role,
    /// The pool that the client means; empty for any.
    pub pool: String,
    /// The client's name and version, for people.
    pub build: String,
}

impl Hello {
    /// Creates the hello of this build.
    pub fn new(role: Role, pool: &str, build: &str) -> Self {
        Self { magic: MAGIC, version: VERSION, role, pool: pool.to_owned(), build: build.to_owned() }
    }

    /// Checks the hello on behalf of the daemon of `pool`. Returns the version to speak: the smaller one of
    /// both sides.
    ///
    /// # Errors
    /// The refusal to send: not this protocol, another pool, or which side to upgrade.
    pub fn check(&self, pool: &str) -> Result<u16, Refusal> {
        let refuse = |message: String| Err(Refusal::protocol(message));
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
                "this is pool {pool:?}, not {:?}: check --pool, POOL_NAME, POOL_SOCKET and POOL_STATE_DIR",
                self.pool
            ));
        }
        Ok(self.version.min(VERSION))
    }
}

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sends requests.
    Client,
    /// Sends observations of tmux. At most one is connected.
    Watcher,
    /// Requests candidates and reports verdicts; may also send a client's reads.
    Reaper,
    /// Works on messages.
    Generator,
    /// Receives the state, then events.
    Subscriber,
    /// A watcher that replaces the connected one, which is disconnected.
    NextWatcher,
}

/// The answer to a hello.
pub type HelloReply = Result<Welcome, Refusal>;

/// The answer to an accepted hello; the alternative is a [`crate::Refusal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that both sides speak.
    pub version: u16,
    /// The epoch of the daemon's start.
    pub epoch: Epoch,
    /// The last committed event.
    pub seq: Seq,
    /// The daemon's name and version, for people.
    pub build: String,
    /// Names of abilities that this daemon has beyond its version.
    pub capabilities: Vec<String>,
}
