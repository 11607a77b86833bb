//! The tmux binary: its version, and whether that is new enough.

use tokio::time::Instant;

use crate::device::Device;
use crate::error::{TmuxError, shorten};
use crate::version::{OLDEST, Version};

impl Device {
    /// Returns the version of the binary; a running server may be older.
    ///
    /// # Errors
    /// As any call; [`TmuxError::Output`] if the answer is not a known form of version.
    pub async fn version(&self) -> Result<Version, TmuxError> {
        self.version_until(Instant::now() + self.deadline).await
    }

    async fn version_until(&self, deadline: Instant) -> Result<Version, TmuxError> {
        let reply = self.run_alone("-V", deadline).await?;
        let text = String::from_utf8_lossy(&reply.stdout);
        if !reply.ok {
            return Err(reply.error());
        }
        Version::parse(&text).ok_or_else(|| TmuxError::Output(shorten(&text)))
    }

    /// Refuses a binary that is older than [`OLDEST`]. Checked before the first client, and again after each refusal. A
    /// version of an unknown form is accepted.
    ///
    /// # Errors
    /// [`TmuxError::TooOld`]; as any call if the binary cannot be run.
    pub async fn check_version(&self) -> Result<(), TmuxError> {
        self.check_version_until(Instant::now() + self.deadline).await
    }

    pub(crate) async fn check_version_until(&self, deadline: Instant) -> Result<(), TmuxError> {
        if self.supported.is_known() {
            return Ok(());
        }
        match self.version_until(deadline).await {
            Ok(version) if version < OLDEST => {
                return Err(TmuxError::TooOld { version, binary: self.binary.clone() });
            }
            Err(error @ (TmuxError::Missing(_) | TmuxError::Spawn(_) | TmuxError::TimedOut(_))) => {
                return Err(error);
            }
            _ => self.supported.learn(),
        }
        Ok(())
    }
}
