//! Renders man pages: of topics from their Markdown, of verbs from their clap definitions.

use std::io::{self, Write};

use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::markdown::{self, Block, Span};
use super::{TOPICS, Topic, text};
use crate::show::out::Style;

/// Title of the manual, in the header of each page.
const MANUAL: &str = "tmux-pool manual";
const SOURCE: &str = concat!("tmux-pool ", env!("CARGO_PKG_VERSION"));
/// Columns of a table: man indents by 7, and leaves 1, of 80.
const TABLE_WIDTH: usize = 72;
/// Indentation of code, in columns.
const CODE_INDENT: &str = "4";
/// Topics that show most verbs: they are not listed below each.
const GENERAL: [&str; 5] = ["getting-started", "scripting", "cli", "troubleshooting", "glossary"];

/// Renders a topic: `tmux-pool-TOPIC(7)`.
pub(crate) fn topic(topic: &Topic) -> String {
    let mut roff = Roff::new();
    let name = topic.man_name();
    roff.control("TH", [name.as_str(), "7", "", SOURCE, MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {}", topic.summary()))]);
    for block in markdown::blocks(topic.markdown) {
        match block {
            Block::Heading(1, _) => drop(roff.control("SH", ["DESCRIPTION"])),
            Block::Heading(2, title) => drop(roff.control("SH", [title.to_uppercase().as_str()])),
            Block::Heading(_, title) => drop(roff.control("SS", [title])),
            Block::Paragraph(text) => drop(roff.control("PP", []).text(inlines(&text))),
            Block::Code(lines) => {
                roff.control("PP", []).control("RS", [CODE_INDENT]);
                verbatim(&mut roff, lines);
                roff.control("RE", []);
            }
            Block::List(items) => {
                for (mark, text) in items {
                    let (mark, width) = if mark == "-" { ("\\(bu", "2") } else { (mark, "4") };
                    roff.control("IP", [mark, width]).text(inlines(&text));
                }
            }
            Block::Table(rows) => {
                roff.control("PP", []);
                verbatim(&mut roff, text::table(&rows, TABLE_WIDTH, Style::default()));
            }
        }
    }
    roff.render()
}

fn verbatim(roff: &mut Roff, lines: impl IntoIterator<Item = impl Into<String>>) {
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line.into())]);
    }
    roff.control("fi", []);
}

fn inlines(text: &str) -> Vec<Inline> {
    let mut inlines = Vec::new();
    for span in markdown::spans(text) {
        match span {
            Span::Plain(text) => inlines.push(roman(text)),
            Span::Emphasis(text) => inlines.push(italic(text)),
            Span::Code(text) | Span::Strong(text) => inlines.push(bold(text)),
            Span::Link(label, target) => match target.strip_suffix(".md").and_then(super::find) {
                Some(topic) if label == topic.name => inlines.extend([bold(topic.man_name()), roman("(7)")]),
                Some(topic) => {
                    inlines.extend([roman(format!("{label} (")), bold(topic.man_name()), roman("(7))")]);
                }
                None => inlines.push(roman(format!("{label} ({target})"))),
            },
        }
    }
    inlines
}

/// Renders a verb, or the program itself: `poolctl-VERB(1)`, `poolctl(1)`.
pub(crate) fn verb(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut command = command.clone();
    if command.find_subcommand("help").is_some() {
        // `help` has no page of its own.
        command = command.mut_subcommand("help", |help| help.hide(true));
    }
    let man = Man::new(command.clone()).manual(MANUAL).source(SOURCE);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.write_all(synopsis(&mut command.clone()).as_bytes())?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let shown = |verb: &&clap::Command| !verb.is_hide_set();
    if command.get_subcommands().any(|verb| shown(&verb)) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    // clap_mangen would fill these lines, which contain tables.
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        rest.control("SH", ["NOTES"]);
        verbatim(&mut rest, after.to_string().lines());
    }
    rest.control("SH", ["SEE ALSO"]);
    rest.text(see_also(&command));
    page.write_all(rest.render().as_bytes())?;
    Ok(page)
}

/// The words of a call as `--help` shows them: clap_mangen's own synopsis lacks `--`, `...` and the names of values.
fn synopsis(command: &mut clap::Command) -> String {
    let usage = command.render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([roman(usage.trim_start_matches("Usage:").trim())]);
    roff.render()
}

/// The related pages of a verb: its parent, and the topics that show it. Those of the program: all topics.
fn see_also(command: &clap::Command) -> Vec<Inline> {
    // The verb's words are told by its program name: in its own name a dash may join words or be part of one.
    let words = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let (parent, verb) = words.rsplit_once(' ').unwrap_or((words, ""));
    let call = words.strip_prefix("poolctl ").unwrap_or_default();
    let relates =
        |topic: &&Topic| verb.is_empty() || topic.shows_verb(call) && !GENERAL.contains(&topic.name);
    let topics = TOPICS.iter().filter(relates).map(|topic| (topic.man_name(), "(7)"));
    let parent = (!verb.is_empty()).then(|| (parent.replace(' ', "-"), "(1)"));
    let mut inlines = Vec::new();
    for (name, section) in parent.into_iter().chain(topics) {
        if !inlines.is_empty() {
            inlines.push(roman(", "));
        }
        inlines.extend([bold(name), roman(section)]);
    }
    inlines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_becomes_a_page_of_section_7() {
        let markdown = "# Slots: few for many\n\nUse `poolctl ls`, see [locks](locks.md).\n\n## More\n\n\
            ```sh\n.hidden \\n -x\n```\n- 'one'\n\n| a | b |\n|---|---|\n| 1 | 2 |\n";
        let page = topic(&Topic { name: "slots", markdown });
        let body = page.split_once(".TH").unwrap().1;
        assert!(
            body.starts_with(" tmux\\-pool\\-slots 7") || body.starts_with(" tmux-pool-slots 7"),
            "{page}"
        );
        for part in [
            ".SH NAME\ntmux\\-pool\\-slots \\- few for many\n",
            ".SH DESCRIPTION\n.PP\nUse \\fBpoolctl ls\\fR, see \\fBtmux\\-pool\\-locks\\fR(7).\n",
            ".SH MORE\n",
            ".nf\n\\&.hidden \\\\n \\-x\n.fi\n",
            ".IP \\(bu 2\n",
            "a  b\n1  2\n",
        ] {
            assert!(page.contains(part), "no {part:?} in:\n{page}");
        }
    }

    #[test]
    fn a_verb_with_a_dash_has_its_own_parent() {
        let talkers = clap::Command::new("top-talkers").subcommand(clap::Command::new("ls"));
        let mut command = clap::Command::new("poolctl").subcommand(talkers);
        command.build();
        let talkers = command.find_subcommand("top-talkers").unwrap();
        for (verb, parent) in
            [(talkers, "poolctl\\fR(1)"), (talkers.find_subcommand("ls").unwrap(), "top\\-talkers\\fR(1)")]
        {
            let page = String::from_utf8(super::verb(verb).unwrap()).unwrap();
            let also = page.split_once("SEE ALSO").unwrap().1;
            assert!(also.contains(parent) && !also.contains("poolctl\\-top\\fR"), "{also}");
        }
    }
}
