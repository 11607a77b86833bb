//! Generates values of any wire type through its own `Deserialize`: from random bytes for the property tests
//! (after their end every choice is the smallest, so that failures shrink to small values), and by a fixed
//! rule for the golden vectors.

use std::fmt;

use proptest::prelude::*;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};

/// Returns a strategy for `T`.
pub(crate) fn any_of<T: DeserializeOwned + fmt::Debug>() -> impl Strategy<Value = T> {
    proptest::collection::vec(any::<u8>(), 0..700)
        .prop_filter_map("a text that is no name", |bytes| made(Random(bytes.iter())))
}

/// Builds the value of these choices, unless they are invalid for `T`.
pub(crate) fn made<T: DeserializeOwned>(choices: impl Choose) -> Option<T> {
    T::deserialize(&mut Maker(choices)).ok()
}

/// The choices from which a value is built.
pub(crate) trait Choose {
    fn number(&mut self) -> u64;
    fn bytes(&mut self) -> Vec<u8>;
    fn text(&mut self) -> String;
    /// Chooses a flag, and whether an optional value is present.
    fn yes(&mut self) -> bool;
    /// Chooses the length of a list.
    fn count(&mut self) -> usize;
    /// Chooses a variant of this enum.
    fn variant(&mut self, variants: &'static [&'static str]) -> usize;
}

struct Random<'a>(std::slice::Iter<'a, u8>);

impl Random<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }
}

impl Choose for Random<'_> {
    /// Chooses numbers of every length, because their encodings differ.
    fn number(&mut self) -> u64 {
        let bytes = [0, 1, 1, 2, 4, 8][usize::from(self.byte() % 6)];
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.byte() % 20).map(|_| self.byte()).collect()
    }

    /// Chooses valid names mostly, and sometimes arbitrary text.
    fn text(&mut self) -> String {
        let odd = self.byte() % 16 == 15;
        let bytes = self.bytes();
        if odd {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        let letter = |b: &u8| char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[usize::from(b % 36)]);
        std::iter::once('a').chain(bytes.iter().map(letter)).collect()
    }

    fn yes(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    fn count(&mut self) -> usize {
        usize::from(self.byte() % 4)
    }

    fn variant(&mut self, variants: &'static [&'static str]) -> usize {
        usize::from(self.byte()) % variants.len()
    }
}

struct Maker<C>(C);

#[derive(Debug)]
struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Unusable {}

impl de::Error for Unusable {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
            visitor.$visit(self.0.number() as $type)
        })*
    };
}

impl<'de, C: Choose> de::Deserializer<'de> for &mut Maker<C> {
    type Error = Unusable;

    numbers!(
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64, deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64
    );

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
        visitor.visit_bool(self.0.yes())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
        visitor.visit_string(self.0.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
        visitor.visit_string(self.0.text())
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
        visitor.visit_byte_buf(self.0.bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
        visitor.visit_byte_buf(self.0.bytes())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
        if self.0.yes() { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unusable> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
        let left = self.0.count();
        visitor.visit_seq(Items { from: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Unusable> {
        visitor.visit_seq(Items { from: self, left: len })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Unusable> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusable> {
        let left = self.0.count();
        visitor.visit_map(Items { from: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unusable> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unusable> {
        let index = u32::try_from(self.0.variant(variants)).unwrap();
        visitor.visit_enum(Variant { from: self, index })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Unusable> {
        Err(Unusable("a type that must describe itself".to_owned()))
    }

    serde::forward_to_deserialize_any! { i128 u128 f32 f64 char unit_struct identifier ignored_any }
}

struct Items<'a, C> {
    from: &'a mut Maker<C>,
    left: usize,
}

impl<'de, C: Choose> de::SeqAccess<'de> for Items<'_, C> {
    type Error = Unusable;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Unusable> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.from).map(Some)
    }
}

impl<'de, C: Choose> de::MapAccess<'de> for Items<'_, C> {
    type Error = Unusable;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Unusable> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unusable> {
        seed.deserialize(&mut *self.from)
    }
}

struct Variant<'a, C> {
    from: &'a mut Maker<C>,
    index: u32,
}

impl<'de, C: Choose> de::EnumAccess<'de> for Variant<'_, C> {
    type Error = Unusable;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Unusable> {
        Ok((seed.deserialize(IntoDeserializer::<Unusable>::into_deserializer(self.index))?, self))
    }
}

impl<'de, C: Choose> de::VariantAccess<'de> for Variant<'_, C> {
    type Error = Unusable;

    fn unit_variant(self) -> Result<(), Unusable> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Unusable> {
        seed.deserialize(self.from)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Unusable> {
        de::Deserializer::deserialize_tuple(self.from, len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unusable> {
        de::Deserializer::deserialize_tuple(self.from, fields.len(), visitor)
    }
}
