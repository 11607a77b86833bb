//! Errors of agents that come from an outage of their service: the next prompt would fail alike, and after the outage the
//! same prompt succeeds.

use crate::kind::Adapter;

/// The words before a status of HTTP, as agents write it.
const BEFORE_STATUS: [&str; 3] = ["api error: ", "unexpected status ", "last status: "];

/// Words of Claude Code 2.1.197: the first of a hook's `error`, and what it says of a network that is away.
const CLAUDE: [&str; 4] = ["server_error", "overloaded", "unable to connect to api", "connection error"];
/// Words of Codex 0.169.0: a service that answers 500, a stream that ends early, a network that is away.
const CODEX: [&str; 4] = [
    "experiencing high demand",
    "stream disconnected before completion",
    "error sending request",
    "connection failed",
];

/// Whether an agent's error comes from an outage: statuses of 500 and above, and its own words.
pub(super) fn is_outage(adapter: Adapter, error: &str) -> bool {
    let error = error.to_lowercase();
    let words: &[&str] = match adapter {
        Adapter::Claude => &CLAUDE,
        Adapter::Codex => &CODEX,
        _ => &[],
    };
    let statuses = BEFORE_STATUS.iter().filter_map(|words| error.split_once(words));
    let fails = |(_, rest): (&str, &str)| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        digits == 3 && rest.starts_with('5')
    };
    words.iter().any(|words| error.contains(words)) || statuses.into_iter().any(fails)
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
