//! `export`: the whole database as JSON lines.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use protocol::blocking::Connection;
use protocol::{Frame, Request, Response, Role};
use serde_json::json;

use crate::context::{Context, absolute};
use crate::error::Error;
use crate::exit;
use crate::show::out;

/// Write the whole database as JSON lines, which `import` reads
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Into this file, which only its owner may read, whole or not at all [default: standard output]
    pub file: Option<PathBuf>,
}

/// Writes it.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => into_file(context, &absolute(file)?)?,
        None => {
            keep_private()?;
            copy(context, out::text)?;
        }
    }
    Ok(exit::OK)
}

/// Where standard output is a file, only its owner may read it: it gets the environments of all sessions.
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
    let failed = |error| Error::failed(format!("others could read the file: {error}; give its path instead"));
    if own().map_err(failed)? {
        out::note("poolctl: the file has the secrets of all sessions; only its owner may read it now");
    }
    Ok(())
}

/// The file appears when all of it is on disk.
fn into_file(context: &Context, path: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| Error::failed(format!("{}: {error}", path.display()));
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::usage(format!("{} is no file", path.display())));
    };
    let beside = dir.join(format!(".{}.{}.new", name.to_string_lossy(), std::process::id()));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&beside).map_err(failed)?;
    let mut bytes = 0;
    let copied = copy(context, |text| {
        bytes += text.len();
        file.write_all(text.as_bytes()).map_err(failed)
    });
    let written = copied.and_then(|()| {
        let moved = file.sync_all().and_then(|()| fs::rename(&beside, path));
        moved.and_then(|()| File::open(dir)?.sync_all()).map_err(failed)
    });
    if let Err(error) = written {
        // It may have its name already, or nothing may be left of it.
        drop(fs::remove_file(&beside));
        return Err(error);
    }
    if context.style.json {
        out::json(&json!({"path": path.to_string_lossy(), "bytes": bytes}))
    } else {
        context.say(&format!("{bytes} bytes written to {}", path.display()))
    }
}

/// Hands the text over piece by piece, as it comes.
fn copy(context: &Context, mut write: impl FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
    let mut connection = connect(context)?;
    connection.send(Request::Export).map_err(|error| error.refusal())?;
    loop {
        let (last, response) = match connection.next_frame().map_err(|error| error.refusal())? {
            Frame::Part { part, .. } => (false, part),
            Frame::Reply { reply, .. } => (true, reply?),
            _ => continue,
        };
        match response {
            Response::Text(text) => write(&text)?,
            Response::Done => {}
            other => return Err(Error::unexpected(&other)),
        }
        if last {
            return Ok(());
        }
    }
}

fn connect(context: &Context) -> Result<Connection, Error> {
    let connected = context.client().connect(Role::Client, context.limit());
    let mut connection = connected.map_err(|error| error.refusal())?;
    connection.set_timeout(context.waiting_limit());
    Ok(connection)
}
