//! The skill that a prompt asks for.

/// The longest name of a skill, in bytes.
const NAME_MAX: usize = 64;
/// So much of a prompt is looked at, in bytes.
const LOOKED_AT: usize = 8192;

/// The skill that a prompt asks for: `/name` at its start, `$name`, "using skill name", or the agents' own
/// `<command-name>/name</command-name>` and `<skill><name>name</name>`. Of several the last.
#[must_use]
pub fn last_skill(prompt: &str) -> Option<String> {
    let prompt = super::fields::clip(prompt.trim_start(), LOOKED_AT);
    let named = ["<command-name>", "<skill><name>", "<skill>\n<name>"];
    let block = named.into_iter().find_map(|tag| in_block(&prompt, tag));
    let mentioned = || words(&prompt).chain(spelled_out(&prompt)).max_by_key(|(at, _)| *at);
    let command = || alone(prompt.strip_prefix('/')?);
    block.or_else(|| mentioned().map(|(_, name)| name)).or_else(command).map(str::to_owned)
}

/// The name after the last of these tags.
fn in_block<'a>(prompt: &'a str, tag: &str) -> Option<&'a str> {
    let (_, after) = prompt.rsplit_once(tag)?;
    let (inside, _) = after.split_once('<')?;
    let inside = inside.trim();
    alone(inside.strip_prefix('/').unwrap_or(inside))
}

/// Each `$name` and where it stands. A name that is all capitals is a variable.
fn words(prompt: &str) -> impl Iterator<Item = (usize, &str)> {
    prompt.match_indices('$').filter_map(|(at, _)| {
        let before = prompt[..at].chars().next_back();
        let name = name(&prompt[at + 1..])?;
        let free = before.is_none_or(|c| c.is_whitespace() || "(\"'`[,".contains(c));
        let written = name.bytes().any(|b| b.is_ascii_lowercase());
        (free && written).then_some((at, name))
    })
}

/// Each "using skill name" and "using the name skill", and where it stands.
fn spelled_out(prompt: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut before = ["", ""];
    let mut found = Vec::new();
    for word in prompt.split_whitespace() {
        let [verb, noun] = before.map(str::to_ascii_lowercase);
        let skill = matches!(noun.as_str(), "skill" | "skill:");
        if skill && (verb == "using" || verb == "use" || verb == "the") {
            let quoted = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            found.extend(name(quoted).map(|name| (offset(prompt, word), name)));
        }
        before = [before[1], word];
    }
    found.into_iter()
}

/// Where a part of a text begins in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// A name and nothing else up to the next space.
fn alone(text: &str) -> Option<&str> {
    let name = name(text)?;
    let after = text[name.len()..].chars().next();
    after.is_none_or(char::is_whitespace).then_some(name)
}

/// The name at the start of a text.
fn name(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:".contains(c))).unwrap_or(text.len());
    let name = text[..end].trim_end_matches([':', '-', '_']);
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() <= NAME_MAX;
    named.then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_skill_of_a_prompt_is_found() {
        let cases = [
            ("/review the last commit", Some("review")),
            ("/plugin:tidy-up", Some("plugin:tidy-up")),
            ("please $deploy now", Some("deploy")),
            ("$one then $two", Some("two")),
            ("Using skill release-notes, write them", Some("release-notes")),
            ("use skill `lint`.", Some("lint")),
            ("using the skill audit", Some("audit")),
            ("using skill one, then $two", Some("two")),
            ("$two, then using skill one", Some("one")),
            ("<command-message>x</command-message>\n<command-name>/triage</command-name>", Some("triage")),
            ("<skill><name>pdf</name><path>p</path></skill>", Some("pdf")),
            ("/tmp/file is broken", None),
            ("look at /review", None),
            ("echo $HOME costs $5 and a$b", None),
            ("this skill set is good", None),
            ("using skill", None),
            ("", None),
            ("/", None),
            ("$", None),
        ];
        for (prompt, skill) in cases {
            assert_eq!(last_skill(prompt).as_deref(), skill, "{prompt}");
        }
        assert_eq!(last_skill(&format!("/{}", "a".repeat(NAME_MAX + 1))), None);
    }

    proptest! {
        #[test]
        fn any_prompt_is_read(prompt in "([$/<>:a-z]|using skill |é|\\PC){0,60}") {
            if let Some(skill) = last_skill(&prompt) {
                prop_assert!(prompt.contains(&skill));
            }
        }
    }
}
