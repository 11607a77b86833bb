//! Finds the skill that a prompt asks for.

/// The longest name of a skill, in bytes.
const NAME_MAX: usize = 64;
/// The length of a prompt's beginning that is searched, in bytes.
const SEARCHED: usize = 8192;

/// Returns the skill that a prompt asks for, the last of several: `/name` at its start, `$name`,
/// "using skill name", or the agents' `<command-name>/name</command-name>` and `<skill><name>name</name>`.
pub fn last_skill(prompt: &str) -> Option<String> {
    let prompt = super::fields::clip(prompt.trim_start(), SEARCHED);
    let tags = ["<command-name>", "<skill><name>", "<skill>\n<name>"];
    let tagged = tags.into_iter().find_map(|tag| after_tag(&prompt, tag));
    let mentioned = || variables(&prompt).chain(phrases(&prompt)).max_by_key(|(at, _)| *at);
    let command = || whole_word(prompt.strip_prefix('/')?);
    tagged.or_else(|| mentioned().map(|(_, name)| name)).or_else(command).map(str::to_owned)
}

/// Returns the name after the last occurrence of a tag.
fn after_tag<'a>(prompt: &'a str, tag: &str) -> Option<&'a str> {
    let (_, after) = prompt.rsplit_once(tag)?;
    let (inside, _) = after.split_once('<')?;
    let inside = inside.trim();
    whole_word(inside.strip_prefix('/').unwrap_or(inside))
}

/// Returns each `$name` with its offset. Names without lower-case letters are environment variables and left
/// out.
fn variables(prompt: &str) -> impl Iterator<Item = (usize, &str)> {
    prompt.match_indices('$').filter_map(|(at, _)| {
        let before = prompt[..at].chars().next_back();
        let name = name(&prompt[at + 1..])?;
        let begins_word = before.is_none_or(|c| c.is_whitespace() || "(\"'`[,".contains(c));
        let is_skill = name.bytes().any(|b| b.is_ascii_lowercase());
        (begins_word && is_skill).then_some((at, name))
    })
}

/// Returns each name after "using skill", "use skill" or "the skill" with its offset.
fn phrases(prompt: &str) -> impl Iterator<Item = (usize, &str)> {
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

/// Returns the offset of a part of a text in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// Returns the name at the start of a text if white space or the end follows.
fn whole_word(text: &str) -> Option<&str> {
    let name = name(text)?;
    let after = text[name.len()..].chars().next();
    after.is_none_or(char::is_whitespace).then_some(name)
}

/// Returns the name at the start of a text.
fn name(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:".contains(c))).unwrap_or(text.len());
    let name = text[..end].trim_end_matches([':', '-', '_']);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() <= NAME_MAX;
    is_name.then_some(name)
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
