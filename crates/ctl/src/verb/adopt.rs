//! `adopt`: take in a tmux session that the pool did not create.

use protocol::Request;
use protocol::request;

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::SessionJson;
use crate::show::{out, time};
use crate::verb::expect_session;

/// Take in a tmux session that the pool did not create; prints its id
///
/// From then on the pool owns that one pane: it is listed, can be sent to, and is ended by `kill` and
/// `rm` like any other session's. What runs in it goes on undisturbed. `rm --keep-tmux` gives it back.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A pane (%7), a tmux session ($3), or the exact name of one; a session must have one pane only
    pub target: String,
    /// The workspace it is to belong to [default: its name]
    #[arg(long, value_name = "NAME")]
    pub workspace: Option<String>,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Takes it in and prints its id.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let repeat = args.repeat.clone();
    let view = expect_session(context.client().change(&repeat, request(args))?)?;
    if context.style.json {
        out::json(&SessionJson::new(&view, time::now()))?;
    } else {
        out::line(&view.session.id.to_string())?;
    }
    Ok(exit::OK)
}

fn request(args: Args) -> Request {
    Request::Adopt(request::Adopt { target: args.target, workspace: args.workspace })
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
        let adopt = |target: &str, workspace: Option<&str>| {
            Request::Adopt(request::Adopt {
                target: target.to_owned(),
                workspace: workspace.map(str::to_owned),
            })
        };
        assert_eq!(asked(&["adopt", "%7"]), adopt("%7", None));
        assert_eq!(asked(&["adopt", "$3", "--workspace", "w"]), adopt("$3", Some("w")));
        assert_eq!(asked(&["adopt", "My own session"]), adopt("My own session", None));
    }
}
