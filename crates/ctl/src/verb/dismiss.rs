//! `dismiss`: takes what sessions ask off the list of what waits for a person.

use protocol::reply::InboxItem;
use protocol::{Request, SessionView};

use crate::calls::expected;
use crate::show::out;
use crate::targets::{Scope, Target, Targets, first_error, for_all, for_each, print_session};
use crate::{Context, Error, Repeat, expect_session};

/// Take what sessions ask off the inbox, without an answer
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    repeat: Repeat,
}

/// Dismisses what can be, and says what stays.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let targets = args.targets.find(context, &args.repeat, (Scope::Running, "to dismiss"))?;
    let before = items(context)?;
    let ask = |target: &Target| {
        let dismissed = context.client().change(&args.repeat, Request::Dismiss(target.session.clone()));
        expect_session(dismissed?)
    };
    let mut answered = Vec::new();
    let asked = for_all(context, (&targets, "to be dismissed"), ask, |_, view| {
        answered.push(view);
        Ok(())
    });
    let after = items(context)?;
    let told = for_each(context, &answered, |view| {
        let of = |items: &[InboxItem]| -> Vec<InboxItem> {
            items.iter().filter(|item| item.session == view.session.id).cloned().collect()
        };
        tell(context, view, (of(&before), of(&after)))
    });
    first_error(context, asked, told)
}

fn items(context: &Context) -> Result<Vec<InboxItem>, Error> {
    expected!(context.client().ask(Request::Inbox)?, Inbox)
}

/// Prints the outcome for a session, from its items before and after.
///
/// # Errors
/// Items stay, which are not dismissed but mended.
fn tell(
    context: &Context,
    view: &SessionView,
    (before, after): (Vec<InboxItem>, Vec<InboxItem>),
) -> Result<(), Error> {
    let (id, name) = (view.session.id, &view.session.name);
    let word =
        if before.len() > after.len() || context.style.json { "dismissed" } else { "nothing to dismiss" };
    if after.is_empty() || word == "dismissed" {
        print_session(context, view, &format!("{id}  {name}  {word}"))?;
    }
    let stays = |item: &InboxItem| format!("{} stays until it is mended: `{}`", item.kind, item.next);
    match after.iter().map(stays).collect::<Vec<_>>() {
        stays if stays.is_empty() => Ok(()),
        stays if before.len() > after.len() => {
            out::note(&format!("poolctl: {name}: {}", stays.join("; ")));
            Ok(())
        }
        stays => Err(Error::failed(format!("{name}: {}", stays.join("; ")))),
    }
}
