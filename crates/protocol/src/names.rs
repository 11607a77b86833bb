//! Names of the values of an enum, as they are in options, in the configuration and in the documents of `poolctl`; on the
//! wire, too, but for those of restart policies.

/// Defines `ALL`, `as_str` and `of_name` of an enum, with each name in one place.
macro_rules! names {
    ($type:ident: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// All values, in wire order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the name used in options, in the configuration and in documents.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the value with this name.
            pub fn of_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.as_str() == name)
            }
        }
    };
}

pub(crate) use names;
