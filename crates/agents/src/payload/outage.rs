//! Recognises errors that come from an outage of the agent's service: other prompts fail as well, and the
//! same prompt succeeds after the outage.

use crate::adapter::Adapter;

/// The texts before an HTTP status in the agents' errors.
const BEFORE_STATUS: [&str; 3] = ["api error: ", "unexpected status ", "last status: "];

/// Texts of Claude Code 2.1.197: the first word of a hook's `error`, and messages about an unreachable
/// network.
const CLAUDE: [&str; 4] = ["server_error", "overloaded", "unable to connect to api", "connection error"];
/// Texts of Codex 0.169.0: a service that answers 500, a stream that ends early, an unreachable network.
const CODEX: [&str; 4] = [
    "experiencing high demand",
    "stream disconnected before completion",
    "error sending request",
    "connection failed",
];

/// True if an agent's error contains one of its texts about outages, or an HTTP status of 500 to 599.
pub(super) fn is_outage(adapter: Adapter, error: &str) -> bool {
    let error = error.to_lowercase();
    let words: &[&str] = match adapter {
        Adapter::Claude => &CLAUDE,
        Adapter::Codex => &CODEX,
        _ => &[],
    };
    let statuses = BEFORE_STATUS.iter().filter_map(|words| error.split_once(words));
    let is_server_error = |(_, rest): (&str, &str)| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        digits == 3 && rest.starts_with('5')
    };
    words.iter().any(|words| error.contains(words)) || statuses.into_iter().any(is_server_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_service_failed_is_told_from_what_it_refused() {
        let claude = [
            "server_error: API Error: 500 mock outage. This is a server-side issue, usually temporary — try again",
            "server_error: API Error: Unable to connect to API (ConnectionRefused)",
            "API Error: 529 overloaded",
        ];
        let codex = [
            "We’re currently experiencing high demand, which may cause temporary errors.",
            "unexpected status 503 Service Unavailable: mock outage, url: http://127.0.0.1:1/v1/responses",
            "stream disconnected before completion: stream closed before response.completed",
            "exceeded retry limit, last status: 502 Bad Gateway",
        ];
        for (adapter, errors) in [(Adapter::Claude, &claude[..]), (Adapter::Codex, &codex[..])] {
            for error in errors {
                assert!(is_outage(adapter, error), "{error}");
            }
        }
        for (adapter, error) in [
            (Adapter::Claude, "authentication_failed: Please run /login · API Error: 401 mock outage"),
            (Adapter::Claude, "unknown: API Error: 400 mock outage 500"),
            (Adapter::Claude, "API Error: 50 words"),
            (Adapter::Codex, "unexpected status 404 Not Found: mock outage, url: http://127.0.0.1:5000/v1"),
            (Adapter::None, "server_error"),
        ] {
            assert!(!is_outage(adapter, error), "{error}");
        }
    }
}
