//! Patterns of many variants.

/// Defines a pattern for several variants of an enum, whatever their fields are. A field that all of them have can be
/// bound. A `match` by such lists stays exhaustive: a new variant does not compile until a list has it.
#[macro_export]
macro_rules! variants {
    ($enum:ident: $($name:ident)+) => { $($enum::$name { .. })|+ };
    ($enum:ident { $field:ident, .. }: $($name:ident)+) => { $($enum::$name { $field, .. })|+ };
}
