//! `man`: shows a topic of the manual (`help TOPIC` is parsed as this verb), or writes the man pages that
//! `scripts/install` installs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::manual::{self, TOPICS, pager, roff, text};
use crate::show::out;
use crate::{Context, Error};

/// Show a topic of the manual, or write the whole manual as man pages
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// The topic
    #[arg(required_unless_present = "dir", conflicts_with = "dir")]
    topic: Option<String>,
    /// Write man1/poolctl*.1 and man7/tmux-pool-*.7 into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Shows a page or writes all of them. `whole` is the definition of the command line with all verbs.
pub(crate) fn run(context: &Context, args: &Args, whole: &clap::Command) -> Result<(), Error> {
    if let Some(dir) = &args.dir {
        write(dir, whole).map_err(|error| Error::failed(format!("{}: {error}", dir.display())))?;
    }
    if let Some(word) = &args.topic {
        show(context, word, whole)?;
    }
    Ok(())
}

fn show(context: &Context, word: &str, whole: &clap::Command) -> Result<(), Error> {
    let Some(topic) = manual::find(word) else {
        let shown = whole.get_subcommands().filter(|verb| !verb.is_hide_set());
        return Err(Error::usage(manual::unknown(word, shown.map(clap::Command::get_name))));
    };
    let style = context.style;
    if style.json {
        return out::json(&json!({"topic": topic.name, "text": topic.markdown}));
    }
    pager::show(&text::page(topic.markdown, pager::width(style.terminal), style), style.terminal)
}

fn write(dir: &Path, whole: &clap::Command) -> std::io::Result<()> {
    let (verbs, topics) = (dir.join("man1"), dir.join("man7"));
    fs::create_dir_all(&verbs)?;
    fs::create_dir_all(&topics)?;
    for topic in TOPICS {
        fs::write(topics.join(format!("{}.7", topic.man_name())), roff::topic(topic))?;
    }
    write_verb(&verbs, whole)
}

/// Writes the page of a verb, and those of the verbs below it.
fn write_verb(dir: &Path, command: &clap::Command) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        write_verb(dir, verb)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(dir.join(format!("{name}.1")), roff::verb(command)?)
}
