//! `label`: sets and removes labels of sessions.

use protocol::Request;
use protocol::request::Label;

use crate::args::{labels, pair};
use crate::show::session;
use crate::targets::{Scope, Selection, Target, Targets, for_all, print_session};
use crate::{Context, Error, Repeat, expect_session};

/// Set and remove labels of sessions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sessions, and each label to set as K=V
    #[arg(value_name = "SESSION|K=V")]
    words: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Remove this label
    #[arg(long, value_name = "K")]
    remove: Vec<String>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Changes the labels, and prints all of them.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    // No name of a session has an equals sign.
    let (set, sessions): (Vec<String>, Vec<String>) =
        args.words.into_iter().partition(|word| word.contains('='));
    let set = set.iter().map(|word| pair(word)).collect::<Result<Vec<_>, _>>().map_err(Error::usage)?;
    let set = labels(&set)?;
    if let Some(key) = args.remove.iter().find(|key| set.contains_key(*key)) {
        return Err(Error::usage(format!("the label {key} is to be set and to be removed")));
    }
    if set.is_empty() && args.remove.is_empty() {
        return Err(Error::usage(
            "no label to set or to remove: `poolctl label web stage=test --remove team`",
        ));
    }
    let targets = Targets { sessions, selection: args.selection };
    targets.check()?;
    let targets = targets.find(context, &args.repeat, (Scope::Any, "to label"))?;
    let ask = |target: &Target| {
        let label = Label { session: target.session.clone(), set: set.clone(), remove: args.remove.clone() };
        expect_session(context.client().change(&args.repeat, Request::Label(label))?)
    };
    for_all(context, (&targets, "to be labelled"), ask, |_, view| {
        let labels = session::labels(&view.session.labels);
        print_session(context, &view, &format!("{}  {}", view.session.id, labels))
    })
}
