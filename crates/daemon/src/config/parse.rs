//! Reads and checks the configuration file.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::{Gid, Group, Uid, User, geteuid};

use crate::config::file::{Config, check_keys};
use crate::config::values::{ConfigError, invalid};

/// Maximum length of the file, in bytes.
const LENGTH_MAX: u64 = 1 << 20;

impl Config {
    /// Reads and checks the file; a missing file gives the defaults, but not a link whose target is gone.
    ///
    /// # Errors
    /// The first problem, with the path.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = match read_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => match dangling_link(path) {
                Some(link) => {
                    let file = if link == path { String::new() } else { format!("{}: ", path.display()) };
                    return invalid(format!(
                        "{file}{} is a link whose target is missing: put the target back, or remove the link",
                        link.display()
                    ));
                }
                None => String::new(),
            },
            Err(error) => return invalid(format!("{}: {error}", path.display())),
        };
        Self::parse(&text).map_err(|ConfigError(what)| ConfigError(format!("{}: {what}", path.display())))
    }

    /// Parses and checks a text.
    ///
    /// # Errors
    /// The first problem, with its section and key.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let table: toml::Table = toml::from_str(text).map_err(|e| mistake(text, &e))?;
        check_keys(&table)?;
        let config: Self = toml::from_str(text).map_err(|e| mistake(text, &e))?;
        config.settings(Path::new("/"), 0)?;
        config.daemon_settings()?;
        config.tmux_socket(Path::new("/"))?;
        Ok(config)
    }
}

/// Returns a mistake with its place, but without the text there, which may be a secret: `status` shows it as well.
fn mistake(text: &str, error: &toml::de::Error) -> ConfigError {
    let what = without_value(error.message());
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return ConfigError(what) };
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    let key = key_before(before).map_or_else(String::new, |key| format!("{key}: "));
    ConfigError(format!("TOML parse error at line {line}, column {column}: {key}{what}"))
}

/// Returns the key of the value that begins here, if nothing else comes before it in its line.
fn key_before(text: &str) -> Option<&str> {
    let key = text.rsplit('\n').next()?.trim_end().strip_suffix('=')?.trim();
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!key.is_empty() && key.chars().all(is_bare)).then_some(key)
}

/// Removes the value from a message like `invalid type: string "VALUE", expected a map`.
fn without_value(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => {
            let kind = found.split(['"', '`']).next().unwrap_or_default().trim_end();
            format!("{kind}, expected {expected}")
        }
        _ => message.to_owned(),
    }
}

/// Returns the link on the way to a missing file whose target is gone: somebody has made the file, as in a directory
/// that is not mounted now.
fn dangling_link(path: &Path) -> Option<&Path> {
    path.ancestors().find(|place| place.is_symlink() && !place.exists())
}

/// Reads the file, without waiting for a writer.
fn read_text(path: &Path) -> io::Result<String> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let found = file.metadata()?;
    if found.file_type().is_fifo() || found.file_type().is_socket() {
        return Err(wrong("a pipe or a socket is no configuration file"));
    }
    if let Some(why) = untrusted(path, &found) {
        return Err(wrong(&why));
    }
    let mut text = String::new();
    file.take(LENGTH_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LENGTH_MAX { Err(wrong("it has more than 1 MiB")) } else { Ok(text) }
}

/// Returns why a file is not obeyed: another user could have commands run as this one. A device, as `/dev/null`, is
/// the system's.
fn untrusted(path: &Path, found: &Metadata) -> Option<String> {
    let (uid, mode) = (found.uid(), found.mode() & 0o7777);
    if !found.is_file() {
        return None;
    }
    if uid != 0 && uid != geteuid().as_raw() {
        return Some(format!(
            "it belongs to user {uid}, and names commands that run as you: put a file of your own in its place"
        ));
    }
    let is_shared = mode & 0o002 != 0 || (mode & 0o020 != 0 && !has_private_group(found));
    is_shared.then(|| {
        format!(
            "other users can write to it (mode {mode:04o}), and it names commands that run as you: run \
             `chmod go-w {}`",
            path.display()
        )
    })
}

/// True if nobody but its owner is in a file's group. Many systems give each user such a group, and a umask by which
/// the group can write to new files.
fn has_private_group(found: &Metadata) -> bool {
    let owner = User::from_uid(Uid::from_raw(found.uid())).ok().flatten();
    let group = Group::from_gid(Gid::from_raw(found.gid())).ok().flatten();
    owner.zip(group).is_some_and(|(owner, group)| {
        let names_owner = |member: &String| *member == owner.name;
        owner.gid == group.gid && names_owner(&group.name) && group.mem.iter().all(names_owner)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn defaults_are_valid_and_survive_a_round_trip() {
        let config = Config::parse("").unwrap();
        assert_eq!(Config::parse(&config.to_toml().unwrap()).unwrap(), config);
        assert_eq!(config.settings(Path::new("/s"), 0).unwrap().max_sessions, 16);
    }

    #[test]
    fn a_file_is_read_without_waiting_and_within_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, long) = (dir.path().join("pipe"), dir.path().join("long"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(&long, "#".repeat((1 << 20) + 1)).unwrap();
        for (path, why) in [(&pipe, "a pipe or a socket"), (&long, "more than 1 MiB")] {
            let refused = Config::read(path).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        assert_eq!(Config::read(&dir.path().join("none")).unwrap(), Config::default());
    }

    #[test]
    fn a_file_that_others_own_or_can_write_is_not_obeyed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        std::fs::write(&file, "[pool]\nmax_sessions = 3\n").unwrap();
        let read = |mode| {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            Config::read(&file).map(|config| config.pool.max_sessions).map_err(|error| error.to_string())
        };
        for mode in [0o600, 0o644] {
            assert_eq!(read(mode), Ok(3));
        }
        for mode in [0o646, 0o666] {
            let refused = read(mode).unwrap_err();
            let cure = format!("run `chmod go-w {}`", file.display());
            assert!(refused.contains("other users can write to it") && refused.ends_with(&cure), "{refused}");
        }
        if !geteuid().is_root() {
            return;
        }
        nix::unistd::chown(&file, None, Some(65534.into())).unwrap();
        assert_eq!(read(0o644), Ok(3));
        assert!(read(0o664).is_err(), "its group is not its owner's");
        nix::unistd::chown(&file, Some(65534.into()), None).unwrap();
        let refused = read(0o644).unwrap_err();
        assert!(refused.contains("it belongs to user 65534"), "{refused}");
    }

    #[test]
    fn a_link_to_a_file_that_is_gone_is_no_missing_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, links) = (dir.path().join("c.toml"), ["a", "b"].map(|name| dir.path().join(name)));
        std::os::unix::fs::symlink("c.toml", &links[0]).unwrap();
        std::os::unix::fs::symlink("gone", &links[1]).unwrap();
        for path in [links[0].clone(), links[1].join("config.toml")] {
            let refused = Config::read(&path).unwrap_err().to_string();
            assert!(refused.contains("is a link whose target is missing"), "{refused}");
            assert_eq!(refused.matches(&*path.to_string_lossy()).count(), 1, "{refused}");
        }
        std::fs::write(&file, "[pool]\nmax_sessions = 3\n").unwrap();
        assert_eq!(Config::read(&links[0]).unwrap().pool.max_sessions, 3);
    }

    #[test]
    fn secrets_are_not_printed() {
        let text = "[agents.a]\ncommand = 'x'\nargs = ['--token', 'hunter2']\nenv = { A = 'hunter2' }\n\
                    [workers.w]\ncommand = ['x', '--password=hunter2']\n[reaper]\nbefore = ['x', '--token', 'hunter2']";
        let shown = Config::parse(text).unwrap().to_toml().unwrap();
        assert!(shown.contains("--token") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_mistake_is_told_by_its_place_without_the_secrets_there() {
        let told = |text: &str| Config::parse(text).unwrap_err().0;
        let place = "TOML parse error at line 2, column";
        let map = told("[agents.a]\nenv = 'K=hunter2'");
        assert_eq!(map, format!("{place} 7: env: invalid type: string, expected a map"));
        let number = told("[agents.a]\nenv = { '\u{e4}' = 1234567 }");
        assert_eq!(number, format!("{place} 15: invalid type: integer, expected a string"));
        for line in
            ["env = { K = 'hunter2', X = oops }", "args = '--key \"a\", expected hunter2'", "K hunter2"]
        {
            let told = told(&format!("[agents.a]\n{line}\n"));
            assert!(told.starts_with(place) && !told.contains("hunter2") && !told.contains('\n'), "{told}");
        }
        assert!(!told("[reaper]\nbefore = 'x --key hunter2'").contains("hunter2"));
        assert!(told("[env]\npass = ['K=hunter2']").starts_with("[env] \"K=\" is neither"));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| Config::parse(text).unwrap_err().0;
        assert!(error("[pool]\nmax_session = 3").contains("[pool] max_session; did you mean max_sessions?"));
        assert!(error("[tmuxx]\n").contains("did you mean tmux?"));
        assert!(error("[agents.x]\ncomand = 'y'").contains("did you mean command?"));
        // A key of another section.
        let cap = "did you mean [pool] max_processes?";
        assert!(
            error("[workers.x]\nmax_processes = 3").contains(&format!("[workers.x] max_processes; {cap}"))
        );
        assert!(error("[workers]\nmax_processes = 3").contains(&format!("[workers] max_processes; {cap}")));
        assert!(error("[workers]\nkinds = ['a']").contains("did you mean [workers.NAME] kinds?"));
        for lease in ["999ms", "25h"] {
            let error = error(&format!("[queue]\nlease = '{lease}'"));
            assert_eq!(error, "[queue] lease: a lease is from 1s to 24h");
        }
        assert!(error("[reaper]\ngrace = 'soon'").contains("duration like 5s"));
        assert!(error("[queue]\nmax_bytes = '1 furlong'").contains("size like 64MiB"));
        assert!(error("[tmux]\nsize = '0x5'").contains("200x50"));
        assert!(error("[tmux]\nsocket = 'work.sock'").contains("absolute path"));
        assert!(error("[tmux]\nhistory_limit = 3000000000").contains("at most 2147483647"));
        assert!(error("[agents.x]\ncommand = 'y'\nenv = { 'A=B' = '1' }").contains("[agents.x] env"));
        assert!(error("[workers.x]\ncommand = ['y']\nenv = { A = \"\\u0000\" }").contains("[workers.x]"));
        assert!(error("[watch]\nheartbeat = '1ms'").contains("under 100ms"));
        assert!(error("[watch]\nheartbeat = '500000000000y'").contains("at most 36500d"));
        assert!(error("[pool\n").contains("TOML parse error"));
    }
}
