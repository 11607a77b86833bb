//! The colours of the repository that a session works in: its own where it has some, else made of its path.

use std::io::Read;
use std::path::Path;

use agents::theme;
use nix::fcntl::OFlag;
use protocol::reply::Theme;

use crate::host::files;

/// Directories in which a repository keeps its colours.
const KEPT_IN: [&str; 2] = [".swimmers", ".throngterm"];

/// The longest file of colours that is read, in bytes.
const COLOURS_MAX: u64 = 64 << 10;

/// The colours for this directory.
pub(super) fn of(dir: &Path) -> Theme {
    let own = |dir: &Path| {
        let files = KEPT_IN.iter().map(|kept| dir.join(kept).join("colors.json"));
        let text = files.filter_map(|path| read(&path)).next()?;
        Some(Theme { of: dir.to_owned().into(), ..theme::parse(&text)? })
    };
    if let Some(own) = dir.ancestors().find_map(own) {
        return own;
    }
    let repository = dir.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(dir);
    theme::from_path(repository.as_os_str().as_encoded_bytes())
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let (file, _) = files::open_regular(path, OFlag::empty()).ok()?;
    let mut text = Vec::new();
    file.take(COLOURS_MAX).read_to_end(&mut text).ok()?;
    Some(text)
}
