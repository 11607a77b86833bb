//! Names of the values of an enum, as in options, in the configuration and in the documents of `poolctl`. They are the
//! names on the wire, too, except those of restart policies.

/// Defines a plain enum with `ALL`, `as_str` and `of_name`, where each variant has its name beside it; or adds these
/// three to an enum that is defined elsewhere. A sentence after the enum also gives it `FromStr`, with the sentence as
/// its error.
#[macro_export]
macro_rules! names {
    (
        $(#[$doc:meta])*
        $vis:vis enum $type:ident { $($(#[$of:meta])* $variant:ident = $name:literal),+ $(,)? }
        $(else $error:literal)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        $vis enum $type {
            $($(#[$of])* $variant),+
        }

        $crate::names!($type: $($variant = $name),+);

        $(impl std::str::FromStr for $type {
            type Err = &'static str;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::of_name(name).ok_or($error)
            }
        })?
    };
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
