//! `export`: writes the whole database as JSON lines.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use protocol::{OsBytes, Request, Response};
use serde_json::json;

use crate::context::absolute;
use crate::show::{escape, out};
use crate::{Context, Error, atomic_file};

/// Write the whole database as JSON lines, which `import` reads
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file, which only its owner may read; on failure it is left as it was [default: standard output]
    file: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    match args.file.as_deref().filter(|file| !is_standard_output(file)) {
        Some(file) => write_file(context, &absolute(file)?)?,
        None => {
            // The mode of standard output is changed only once there is something to write.
            let mut is_begun = false;
            copy(context, |text| {
                if !std::mem::replace(&mut is_begun, true) {
                    keep_private()?;
                }
                if context.style.terminal { out::text(&escaped(text)) } else { out::text(text) }
            })?;
        }
    }
    Ok(())
}

/// Escapes the control characters of JSON lines, which would act on a terminal.
fn escaped(lines: &str) -> String {
    lines.split('\n').map(escape::json).collect::<Vec<_>>().join("\n")
}

/// True for `-`, and for a path of the system such as `/dev/stdout`. If such a path were opened again, it would have a
/// position of its own, and the exported text and the sentence about it would overwrite each other.
fn is_standard_output(path: &Path) -> bool {
    let file_of = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let is_same = || file_of(path).is_some_and(|file| Some(file) == file_of(Path::new("/dev/stdout")));
    path == Path::new("-") || is_named_by_system(path) && is_same()
}

fn is_named_by_system(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}

/// If standard output is a file, makes it readable to its owner only: it gets the environments of all
/// sessions.
fn keep_private() -> Result<(), Error> {
    let own = || -> io::Result<bool> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let found = file.metadata()?;
        let open = found.is_file() && found.mode() & 0o077 != 0;
        if open {
            file.set_permissions(Permissions::from_mode(found.mode() & 0o700))?;
        }
        Ok(open)
    };
    let failed = |error| {
        Error::failed(format!("the file cannot be made private: {error}; give its path as an argument"))
    };
    if own().map_err(failed)? {
        out::note(
            "poolctl: the file contains the secrets of all sessions, and was made readable to its owner only",
        );
    }
    Ok(())
}

/// Writes the file. A regular file, or the target of a link to one, appears only when all of it is on disk. A pipe, a
/// device, and anything below `/dev` and `/proc` is written to directly.
fn write_file(context: &Context, path: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => Error::Output(error),
        _ => Error::failed(format!("{}: {error}", path.display())),
    };
    if path.file_name().is_none() || path.is_dir() {
        return Err(Error::usage(format!("{} is not a file", path.display())));
    }
    let mut bytes = 0;
    let mut write_to = |file: &mut File| {
        copy(context, |text| {
            bytes += text.len();
            file.write_all(text.as_bytes()).map_err(failed)
        })
    };
    if is_named_by_system(path) || std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        write_to(&mut File::options().append(true).open(path).map_err(failed)?)?;
    } else {
        let real = atomic_file::behind_links(path).map_err(failed)?;
        let mut file = atomic_file::create(&real, 0o600).map_err(failed)?;
        write_to(file.as_file_mut())?;
        atomic_file::commit(file, &real).map_err(failed)?;
    }
    if context.style.json {
        out::json(&json!({"path": OsBytes::from(path), "bytes": bytes}))
    } else {
        context.say(&format!("{bytes} bytes written to {}", path.display()))
    }
}

/// Calls `write` with each piece of the text, as it arrives.
fn copy(context: &Context, mut write: impl FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
    context.unlimited_client().ask_each(&Request::Export, |part| match part {
        Response::Text(text) => write(&text),
        Response::Done => Ok(()),
        other => Err(Error::unexpected(&other)),
    })
}
