//! The quick way to read a grant: one pass, no tree. Answers `None` for anything unusual, a fault or not; the thorough
//! way then decides.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::{GrantRequest, MAX_ATTRIBUTES, MAX_EXCLUDE, MAX_VALUES, MIN_TTL, Selector, SelectorAttribute, attribute, name, owner, target};
use crate::ids::ObjectKey;
use crate::time::parse_duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Grant<'a> {
    #[serde(borrow, default)]
    selector: Option<Object<RawSelector<'a>>>,
    #[serde(borrow, default)]
    target: Option<Text<'a>>,
    #[serde(borrow, default)]
    ttl: Option<Text<'a>>,
    #[serde(borrow, default)]
    owner: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSelector<'a> {
    #[serde(default)]
    attributes: Option<Attributes>,
    #[serde(borrow, default)]
    provider: Option<Text<'a>>,
    #[serde(borrow, default)]
    namespace: Option<Text<'a>>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    exclude: Option<Vec<Text<'a>>>,
}

/// A struct from an object only: what serde derives takes a list of the fields' values too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Map<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Map<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        d.deserialize_map(Map(PhantomData)).map(Object)
    }
}

/// Borrowed where it has no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        d.deserialize_str(Borrow).map(Text)
    }
}

struct Attributes(Vec<SelectorAttribute>);

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Attributes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
                let mut attributes = Vec::with_capacity(map.size_hint().unwrap_or(2).min(MAX_ATTRIBUTES));
                while let Some((key, values)) = map.next_entry::<Text<'de>, Values>()? {
                    attributes.push(attribute(key.0.into(), values.0));
                }
                Ok(Attributes(attributes))
            }
        }
        d.deserialize_map(Map)
    }
}

struct Values(Vec<Box<str>>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Values;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E>(self, text: &str) -> Result<Values, E> {
                Ok(Values(vec![text.into()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element::<Text<'de>>()? {
                    values.push(value.0.into());
                }
                // Counted as given, before equal ones become one.
                if values.len() > MAX_VALUES { Err(A::Error::custom("too many values")) } else { Ok(Values(values)) }
            }
        }
        d.deserialize_any(OneOrMany)
    }
}

pub(super) fn grant(bytes: &[u8]) -> Option<GrantRequest> {
    let Object(raw): Object<Grant<'_>> = serde_json::from_slice(bytes).ok()?;
    let ttl = raw.ttl.map(|text| parse_duration(&text.0)).transpose().ok()?;
    if ttl.is_some_and(|ttl| ttl < MIN_TTL) {
        return None;
    }
    Some(GrantRequest {
        selector: raw.selector.map_or(Some(Selector::default()), |Object(raw)| selector(raw))?,
        target: raw.target.map(|text| target(&text.0)).transpose().ok()?,
        ttl,
        owner: raw.owner.map(|text| owner(&text.0)).transpose().ok()?,
    })
}

fn selector(raw: RawSelector<'_>) -> Option<Selector> {
    let mut attributes = raw.attributes.map_or_else(Vec::new, |attributes| attributes.0);
    attributes.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    if attributes.len() > MAX_ATTRIBUTES
        || attributes.windows(2).any(|pair| pair[0].key == pair[1].key)
        || attributes.iter().any(|attribute| attribute.values.is_empty())
    {
        return None;
    }
    let exclude = raw.exclude.unwrap_or_default();
    if exclude.len() > MAX_EXCLUDE {
        return None;
    }
    Some(Selector {
        attributes,
        provider: raw.provider.map(|text| name(&text.0)).transpose().ok()?,
        namespace: raw.namespace.map(|text| name(&text.0)).transpose().ok()?,
        name: raw.name.map(|text| name(&text.0)).transpose().ok()?,
        exclude: exclude.iter().map(|text| ObjectKey::parse(&text.0)).collect::<Option<_>>()?,
    })
}
