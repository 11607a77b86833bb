//! The colours of the repository that a session works in: from its file of colours, or derived from its path.

use std::io::Read;
use std::path::Path;

use agents::theme;
use nix::fcntl::OFlag;
use protocol::reply::Theme;

use crate::host::files;

/// Directories of a repository that may hold its file of colours.
const COLOUR_DIRS: [&str; 2] = [".swimmers", ".throngterm"];

/// Maximum size of a file of colours, in bytes.
const COLOURS_MAX: u64 = 64 << 10;

/// Returns the colours of the repository of a directory.
pub(crate) fn of(dir: &Path) -> Theme {
    let own = |dir: &Path| {
        let files = COLOUR_DIRS.iter().map(|kept| dir.join(kept).join("colors.json"));
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
