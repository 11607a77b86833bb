//! The form of the protocol's types in the documents, where it differs from that in `rpc`: times are text,
//! secrets are redacted.

use protocol::reply::{PaneObservation, QueueCounts, TransportHealth};
use protocol::tmux::TmuxTransport;
use protocol::{Breaker, Exit, Name, SessionId, Standstill, StuckLane, Timestamp, redact};
use serde::{Serialize, Serializer};

use crate::show::time::rfc3339;

/// A type with a form of its own in the documents.
pub(crate) trait Form {
    fn serialize_form<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error>;
}

/// A value in its form in the documents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Json<T>(pub T);

impl<T: Form> Serialize for Json<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_form(s)
    }
}

impl<T: Form> Form for &T {
    fn serialize_form<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (*self).serialize_form(s)
    }
}

/// Serializes a field in its form (for `serialize_with`).
pub(super) fn form<T: Form, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    value.serialize_form(s)
}

/// Serializes an optional field in its form (for `serialize_with`).
pub(super) fn optional<T: Form, S: Serializer>(value: &Option<T>, s: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(Json).serialize(s)
}

/// Serializes a text without secrets (for `serialize_with`).
pub(super) fn redacted<S: Serializer>(text: &str, s: S) -> Result<S::Ok, S::Error> {
    redact::text(text).serialize(s)
}

/// Implements [`Form`] for types by the structs that serde derives for them.
macro_rules! forms {
    ($($type:ty => $fields:ty),+ $(,)?) => {$(
        impl $crate::show::json::form::Form for $type {
            fn serialize_form<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                <$fields>::serialize(self, s)
            }
        }
    )+};
}
pub(super) use forms;

/// Defines a document: its keys in their order, each with its type and its value, and the function that creates the
/// document from these arguments. The value of the expression after the arguments has a name in the other values.
macro_rules! document {
    (
        $(#[$doc:meta])*
        $vis:vis struct $name:ident<$life:lifetime>(
            $($arg:ident: $from:ty),+; $($local:ident = $init:expr),+
        ) { $($(#[$of:meta])* $key:ident: $type:ty = $value:expr,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Debug, serde::Serialize)]
        $vis struct $name<$life> {
            $($(#[$of])* $key: $type,)+
        }

        impl<$life> $name<$life> {
            /// Creates the document.
            $vis fn new($($arg: $from),+) -> Self {
                $(let $local = $init;)+
                Self { $($key: $value),+ }
            }
        }
    };
}
pub(super) use document;

impl Form for Standstill {
    fn serialize_form<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let Self { since, waiting, reason } = self;
        let (code, reason) = (reason.code(), reason.to_string());
        StandstillFields { since: Json(*since), waiting: *waiting, reason, reason_code: code }.serialize(s)
    }
}

#[derive(Serialize)]
struct StandstillFields {
    since: Json<Timestamp>,
    waiting: u64,
    reason: String,
    reason_code: &'static str,
}

impl Form for StuckLane {
    fn serialize_form<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let Self { session, name, kind, standstill } = self;
        StuckLaneFields { session: *session, name, kind, standstill: Json(standstill) }.serialize(s)
    }
}

#[derive(Serialize)]
struct StuckLaneFields<'a> {
    session: SessionId,
    name: &'a Name,
    kind: &'a str,
    #[serde(flatten)]
    standstill: Json<&'a Standstill>,
}

impl Form for Timestamp {
    fn serialize_form<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&rfc3339(*self))
    }
}

forms!(
    Exit => ExitFields, QueueCounts => QueueFields, Breaker => BreakerFields,
    TransportHealth => TransportFields
);

#[derive(Serialize)]
#[serde(remote = "TransportHealth")]
struct TransportFields {
    state: PaneObservation,
    means: Option<TmuxTransport>,
    #[serde(serialize_with = "optional")]
    since: Option<Timestamp>,
    last_error: Option<String>,
    #[serde(serialize_with = "optional")]
    last_error_at: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(remote = "Exit")]
struct ExitFields {
    code: Option<i32>,
    signal: Option<i32>,
    #[serde(serialize_with = "form")]
    at: Timestamp,
}

#[derive(Serialize)]
#[serde(remote = "QueueCounts")]
struct QueueFields {
    queued: u64,
    claimed: u64,
    in_doubt: u64,
    dead: u64,
    #[serde(serialize_with = "optional")]
    oldest_at: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(remote = "Breaker")]
struct BreakerFields {
    failures: u32,
    #[serde(serialize_with = "optional")]
    opened_at: Option<Timestamp>,
    #[serde(serialize_with = "optional")]
    probe_at: Option<Timestamp>,
    reason: Option<String>,
}
