//! `adopt`: adds a tmux session that the pool did not create.

use protocol::{Name, Request, SessionRef, SessionView, request};

use crate::calls::session;
use crate::show::json::SessionJson;
use crate::show::{out, time};
use crate::{Client, Context, Error, Repeat, expect_session};

/// Add a tmux session that the pool did not create; prints its id
///
/// From then on the pool owns that pane: it is listed, can be sent to, and is ended by `kill` and
/// `rm` like that of any other session. Its program keeps running. `rm --keep-tmux` gives it back.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A pane (%7), a tmux session ($3), or the exact name of one; a session must have one pane only
    target: String,
    /// The workspace it belongs to [default: its name]
    #[arg(long, value_name = "NAME")]
    workspace: Option<String>,
    /// End a `pipe-pane` of yours in that pane: tmux has one a pane, and the pool's log needs it
    #[arg(long)]
    replace_pipe: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Adopts it and prints its id.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let (repeat, target) = (args.repeat.clone(), args.target.clone());
    let mut client = context.client();
    let view = expect_session(client.change(&repeat, request(args))?)?;
    if context.style.json {
        out::json(&SessionJson::new(&view, time::now()))
    } else {
        let name = view.session.name.as_str();
        if name != target && !context.style.quiet {
            let holder = holder(&mut client, &target, &view).unwrap_or_default();
            out::note(&format!("{target} is {name} in the pool{holder}"));
        }
        let id = view.session.id;
        out::line(&id.to_string()).map_err(|error| error.unless_written(&format!("{id} is adopted")))
    }
}

/// The reason why an adopted session has another name than its tmux session: a session of the pool has that name.
fn holder(client: &mut Client, target: &str, adopted: &SessionView) -> Option<String> {
    let wanted: Name = target.strip_prefix('=').unwrap_or(target).to_lowercase().parse().ok()?;
    let other = session(client, SessionRef(wanted.to_string())).ok()?.session;
    let has_it = other.id != adopted.session.id && [&other.name, &other.workspace].contains(&&wanted);
    let frees = format!(", which is not running, and `poolctl rm {}` frees it", other.name);
    let frees = Some(frees).filter(|_| other.lifecycle.is_over()).unwrap_or_default();
    has_it.then(|| format!(": {wanted} is the name or workspace of {}{frees}", other.id))
}

fn request(args: Args) -> Request {
    let Args { target, workspace, replace_pipe, .. } = args;
    Request::Adopt(request::Adopt { target, workspace, replace_pipe })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_target_goes_as_it_is() {
        let asked = |line: &[&str]| request(Line::try_parse_from(line).unwrap().args);
        let adopt = |target: &str, workspace: Option<&str>, replace_pipe| {
            Request::Adopt(request::Adopt {
                target: target.to_owned(),
                workspace: workspace.map(str::to_owned),
                replace_pipe,
            })
        };
        assert_eq!(asked(&["adopt", "%7"]), adopt("%7", None, false));
        assert_eq!(asked(&["adopt", "$3", "--workspace", "w"]), adopt("$3", Some("w"), false));
        assert_eq!(
            asked(&["adopt", "My own session", "--replace-pipe"]),
            adopt("My own session", None, true)
        );
    }
}
