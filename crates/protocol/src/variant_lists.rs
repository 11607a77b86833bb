//! Patterns of many variants.

/// Defines a pattern for variants of an enum, whatever their fields are; a field that all of them have can be bound. A
/// `match` by such lists stays exhaustive: with a new variant it does not compile until a list has it.
#[macro_export]
macro_rules! variants {
    ($enum:ident: $($name:ident)+) => { $($enum::$name { .. })|+ };
    ($enum:ident { $field:ident, .. }: $($name:ident)+) => { $($enum::$name { $field, .. })|+ };
}
