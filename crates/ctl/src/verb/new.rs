//! `new`: creates a session.

use std::time::Duration;

use crate::create::{CreateArgs, create, environment_help};
use crate::show::json::SessionJson;
use crate::show::{out, time};
use crate::{Context, Error, ready};

/// Create a session; prints its id once it is verified running
#[derive(Debug, clap::Args)]
#[command(after_help = environment_help())]
pub(crate) struct Args {
    #[command(flatten)]
    create: CreateArgs,
}

/// Creates it and prints its id.
pub(crate) fn run(context: &Context, Args { create: args }: Args) -> Result<(), Error> {
    let mut client = context.client_for_slot(args.lifecycle.wait_slot, Some(Duration::ZERO));
    let blocking = args.blocking;
    let view = create(context, &mut client, args)?;
    let id = view.session.id.to_string();
    let ready = ready::wait(context, blocking, view, None);
    match &ready {
        Ok(view) if context.style.json => out::json(&SessionJson::new(view, time::now())),
        // The session exists even if its agent failed.
        _ => out::line(&id),
    }
    .map_err(|error| error.unless_written(&format!("{id} is created")))?;
    ready.map(drop)
}
