//! Hides keys and passwords in displayed text: values after names such as `--api-key`, `TOKEN=` or
//! `Authorization:`, passwords in URLs, and words that look like keys of well-known services. Redacting twice
//! gives the same result as once.

use std::collections::BTreeMap;

use crate::text::OsBytes;

/// The replacement text.
const MARK: &str = "…redacted…";

/// Suffixes of the names of secrets, in lower case and with `_` in place of `-`.
const NAMES: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "_pass",
    "_pwd",
    "token",
    "secret",
    "credential",
    "credentials",
    "apikey",
    "api_key",
    "access_key",
    "secret_key",
    "private_key",
];

/// Prefixes of the keys of well-known services: OpenAI and Anthropic, Stripe, GitHub, GitLab, Slack, AWS,
/// Google, Hugging Face, Groq, npm, `PyPI`.
const PREFIXES: [&str; 25] = [
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "hf_",
    "gsk_",
    "npm_",
    "pypi-",
];

/// Redacts the words of a command line. A word that is not UTF-8 stays unchanged, unless it is or contains a
/// secret.
pub fn command(words: &[OsBytes]) -> Vec<OsBytes> {
    let mut follows_flag = false;
    let shown = |word: &OsBytes| {
        let text = word.to_string_lossy();
        let is_value = std::mem::replace(&mut follows_flag, is_flag(&text)) && !text.starts_with("--");
        let shown = if is_value { MARK.to_owned() } else { redact_word(&text) };
        if shown == text { word.clone() } else { shown.into() }
    };
    words.iter().map(shown).collect()
}

/// Redacts labels: the whole value if the key names a secret, otherwise the keys of services in it.
pub fn labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = |(key, value): (&String, &String)| {
        let value = if is_name(key) && !value.is_empty() { MARK.to_owned() } else { text(value) };
        (key.clone(), value)
    };
    labels.iter().map(shown).collect()
}

/// Redacts one word. The value after `name=` includes blanks.
fn redact_word(word: &str) -> String {
    match word.split_once('=') {
        Some((name, value)) if name.chars().all(is_name_char) && is_name(name) && !value.is_empty() => {
            format!("{name}={MARK}")
        }
        _ => text(word),
    }
}

/// Redacts any text, such as a script or a settings file.
pub fn text(text: &str) -> String {
    redact_named(&redact_urls(text))
}

/// Redacts passwords in URLs: the text between `//user:` and `@`.
fn redact_urls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("//") {
        shown.push_str(before);
        shown.push_str("//");
        let ends = |c: char| c == '/' || c.is_whitespace() || c.is_control() || "\"'<>".contains(c);
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        let password =
            authority.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?, host)));
        rest = match password.filter(|((_, password), _)| !password.is_empty()) {
            Some(((user, _), host)) => {
                shown.extend([user, ":", MARK, "@", host]);
                &after[authority.len()..]
            }
            None => after,
        };
    }
    shown + rest
}

/// Redacts values after the names of secrets, and words that look like keys.
fn redact_named(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let (mut rest, mut before, mut scheme) = (text, "", false);
    while !rest.is_empty() {
        let named = scheme || is_name(before) || is_header(before);
        let joins = |c: char| if named { !" \t=:,\"'".contains(c) } else { is_name_char(c) };
        let (gap, after) = rest.split_at(rest.find(joins).unwrap_or(rest.len()));
        shown.push_str(gap);
        let part = &after[..after.find(|c| !is_name_char(c)).unwrap_or(after.len())];
        // In `Authorization: Basic abc` the value follows `Basic`.
        let in_header = is_header(before) && gap.contains([':', '=']);
        let names_scheme = is_scheme(part, &after[part.len()..], in_header.then_some(gap));
        let is_value =
            !names_scheme && named && leads_to_value(before, gap, scheme) && !part.starts_with("--");
        let length = if is_value { value_length(gap, after) } else { part.len() };
        let hidden = length > 0 && (is_value || is_key(part));
        shown.push_str(if hidden { MARK } else { &after[..length] });
        (before, rest, scheme) = (if is_value { "" } else { part }, &after[length..], names_scheme);
    }
    shown
}

/// True if the text between a name and the next word makes that word its value.
fn leads_to_value(name: &str, gap: &str, scheme: bool) -> bool {
    gap.contains(['=', ':']) || (!gap.is_empty() && (is_flag(name) || scheme))
}

/// True if it is the name of a header whose secret may follow the name of a scheme.
fn is_header(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with("authorization")
}

/// True if the word is a scheme in front of the value of such a header: `Bearer` anywhere, `Basic` in a
/// header, and any word in a header after a colon and a blank that another word follows.
fn is_scheme(word: &str, after: &str, gap_in_header: Option<&str>) -> bool {
    let ends = |c: char| c.is_whitespace() || "\"',:=".contains(c);
    if word.eq_ignore_ascii_case("bearer") && after.chars().next().is_none_or(ends) {
        return true;
    }
    let value = after.trim_start_matches([' ', '\t']);
    let follows = value.len() < after.len()
        && value.starts_with(|c: char| !c.is_whitespace() && !"\"';&|,)]}".contains(c));
    gap_in_header.is_some_and(|gap| follows && (gap.contains(' ') || word.eq_ignore_ascii_case("basic")))
}

/// Returns the length of a value: up to its closing quote if it has one, else up to the end of the word.
fn value_length(gap: &str, after: &str) -> usize {
    let end = match gap.chars().last().filter(|c| "\"'".contains(*c)) {
        Some(quote) => after.find(quote),
        None => after.find(|c: char| c.is_whitespace() || "\"';&|,)]}".contains(c)),
    };
    end.unwrap_or(after.len())
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

fn is_flag(word: &str) -> bool {
    word.starts_with('-') && is_name(word)
}

/// True if the word names a secret. A variable in capitals may also just end with KEY; `--key` is a file in
/// most programs.
fn is_name(name: &str) -> bool {
    let folded = name.to_ascii_lowercase().replace(['-', '.'], "_");
    let capitals = name.ends_with("KEY") && !name.contains(|c: char| c.is_ascii_lowercase() || c == '-');
    capitals || folded == "pass" || NAMES.iter().any(|end| folded.ends_with(end))
}

/// True if the word begins like a key and is no name such as `sk-learn`.
fn is_key(word: &str) -> bool {
    let is_random =
        |rest: &str| rest.len() >= 8 || (rest.len() >= 4 && rest.contains(|c: char| c.is_ascii_digit()));
    PREFIXES.iter().any(|prefix| word.strip_prefix(prefix).is_some_and(is_random))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&str]) -> String {
        let words: Vec<OsBytes> = words.iter().map(|word| OsBytes::from(*word)).collect();
        command(&words).iter().map(OsBytes::to_string_lossy).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn what_a_secret_is_named_for_is_hidden() {
        for (words, expected) in [
            (&["x", "--api-key=abc", "y"][..], "x|--api-key=…redacted…|y"),
            (&["x", "--api-key", "abc", "y"], "x|--api-key|…redacted…|y"),
            (&["x", "--token", "a b", "--secret", "c"], "x|--token|…redacted…|--secret|…redacted…"),
            (&["x", "--password", "--verbose"], "x|--password|--verbose"),
            (&["env", "ANTHROPIC_API_KEY=abc def", "claude"], "env|ANTHROPIC_API_KEY=…redacted…|claude"),
            (&["env", "KEY=sk-123", "PGPASSWORD=x"], "env|KEY=…redacted…|PGPASSWORD=…redacted…"),
            (&["x", "--password=", "--token"], "x|--password=|--token"),
            (&["curl", "-H", "Authorization: Bearer abc"], "curl|-H|Authorization: Bearer …redacted…"),
        ] {
            assert_eq!(shown(words), expected);
        }
    }

    #[test]
    fn what_looks_like_a_key_is_hidden_wherever_it_is() {
        for key in ["sk-ant-api03-abc", "ghp_16C7e42F292c6912", "xoxb-123456-abc", "AKIAIOSFODNN7EXAMPLE"] {
            assert_eq!(shown(&["x", key]), "x|…redacted…");
            assert_eq!(shown(&["sh", "-c", &format!("echo '{key}' | x")]), "sh|-c|echo '…redacted…' | x");
        }
        assert_eq!(shown(&["https://x:ghp_16C7e42F2@github.com/a"]), "https://x:…redacted…@github.com/a");
        assert_eq!(shown(&["K=AIzaSyA-1234567"]), "K=…redacted…");
    }

    #[test]
    fn what_opens_an_address_or_is_sent_in_a_header_is_hidden() {
        for (words, expected) in [
            (&["psql", "postgres://bob:pw@h/db"][..], "psql|postgres://bob:…redacted…@h/db"),
            (&["URL=redis://:p@w@h:6379"], "URL=redis://:…redacted…@h:6379"),
            (&["http://h:80/a@b", "git@h:a//b", "//h"], "http://h:80/a@b|git@h:a//b|//h"),
            (&["-H", "Authorization: Basic dXNlcjpw"], "-H|Authorization: Basic …redacted…"),
            (&["-H", "Authorization:Basic dXNlcjpw"], "-H|Authorization:Basic …redacted…"),
            (&["-H", "authorization: abc"], "-H|authorization: …redacted…"),
            (&["-H", "X-Api-Key: abc"], "-H|X-Api-Key: …redacted…"),
            (
                &["DB_PASS=abc", "--pass", "X", "MYSQL_PWD=y"],
                "DB_PASS=…redacted…|--pass|…redacted…|MYSQL_PWD=…redacted…",
            ),
            (&["--credentials=abc", "--bypass", "x", "PWD=/x"], "--credentials=…redacted…|--bypass|x|PWD=/x"),
        ] {
            assert_eq!(shown(words), expected);
        }
        let script = "curl -H 'Authorization: Basic abc=' -H Authorization:abc http://a:b@c; DB_PASS=x y";
        let expected = "curl -H 'Authorization: Basic …redacted…' -H Authorization:…redacted… \
                        http://a:…redacted…@c; DB_PASS=…redacted… y";
        assert_eq!(text(script), expected);
        assert_eq!(text("PASSWORD=bearer!x"), "PASSWORD=…redacted…");
    }

    #[test]
    fn redacted_once_is_redacted_for_good() {
        let words = [
            "--api-key",
            "a",
            "TOKEN=b c",
            "ghp_hunter2hunter2",
            "redis://:p@h",
            "Authorization: Basic abc",
            "https://token:abc@h/x",
            "A=1; PASSWORD='x y' z",
            "Bearer abc",
        ];
        let once = command(&words.map(OsBytes::from));
        assert_eq!(command(&once), once);
    }

    #[test]
    fn a_label_hides_its_key_or_what_it_is_named_for() {
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let given = of(&[("tok", "ghp_16C7e42F292c6912"), ("db_pass", "x"), ("team", "infra")]);
        assert_eq!(labels(&given), of(&[("tok", MARK), ("db_pass", MARK), ("team", "infra")]));
    }

    #[test]
    fn a_script_is_searched() {
        for (script, expected) in [
            ("API_KEY=abc; codex --token 'a b' -- x", "API_KEY=…redacted…; codex --token '…redacted…' -- x"),
            ("export TOKEN=\"a b\" && x", "export TOKEN=\"…redacted…\" && x"),
            ("PASSWORD=!x$y run", "PASSWORD=…redacted… run"),
            (
                "env = { OPENAI_API_KEY = \"abc\", A = \"b\" }",
                "env = { OPENAI_API_KEY = \"…redacted…\", A = \"b\" }",
            ),
            ("args = [\"--api-key\", \"abc\"]\nx = 1", "args = [\"--api-key\", \"…redacted…\"]\nx = 1"),
            ("token\nx", "token\nx"),
            ("PASSWORD=", "PASSWORD="),
        ] {
            assert_eq!(text(script), expected);
        }
    }

    #[test]
    fn the_rest_stays_as_it_is() {
        for words in [
            &["claude", "--model", "opus", "--max-tokens=100", "--token-limit", "5"][..],
            &["sh", "-c", "echo \"grün\" > /tmp/x; sleep $((1+1)) 日本"],
            &["sk-tmux", "sk-learn", "--key", "id.pem", "monkey", "--sort-key=name", "key=value"],
            &["", "=", "--", "a=b=c", "secretary"],
        ] {
            assert_eq!(shown(words), words.join("|"));
        }
        let bytes = OsBytes(vec![b'a', 0xff]);
        assert_eq!(command(std::slice::from_ref(&bytes)), [bytes]);
    }
}
