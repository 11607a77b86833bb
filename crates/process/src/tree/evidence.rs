//! Evidence of an incarnation: the facts by which its processes are recognised.

use std::path::{Path, PathBuf};

use protocol::{ProcId, Tag};

/// The known facts about an incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Its init, or the program of an adopted pane.
    pub init: Option<ProcId>,
    /// The terminal session that its init leads. Session ids are reused like pids, so it counts only if the
    /// leader is still the init, or if a process with the tag is in it.
    pub sid: Option<u32>,
    pub tag: Tag,
    /// Its control group. Counts only if it is named for the tag.
    pub cgroup: Option<PathBuf>,
    /// The socket of its pool, set if another pool may use the same tag. The tag then counts only together
    /// with this path in `POOL_SOCKET`.
    pub socket: Option<PathBuf>,
}

impl Evidence {
    /// The control group, all processes of which are members; `None` unless it is named for the tag.
    pub fn group(&self) -> Option<&Path> {
        let named = |path: &Path| path.file_name().is_some_and(|name| name == self.tag.to_string().as_str());
        self.cgroup.as_deref().filter(|path| named(path))
    }
}
