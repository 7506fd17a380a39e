//! Small XML documents as trees: what libvirt is sent, and what it answers. Pure.
//!
//! Every value is escaped by the writer (LV-51); nothing is pasted. Names are read without their prefix: libvirt gives the
//! mark back without its namespace (LV-57).

use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use quick_xml::{Reader, Writer};

/// Deeper documents are refused; libvirt's have about ten levels.
const DEPTH: usize = 64;

/// An element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// Without a prefix when it was read.
    pub name: String,
    /// In order. Namespace declarations are attributes like others.
    pub attributes: Vec<(String, String)>,
    /// The text directly in it, put together.
    pub text: String,
    /// In order.
    pub children: Vec<Element>,
}

/// Why there is no document, or none can be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// It is not well-formed.
    #[error("not well-formed: {0}")]
    Malformed(String),
    /// XML has no way to write this character.
    #[error("a value of <{element}> has a control character")]
    Control {
        /// Where.
        element: String,
    },
}

impl Element {
    /// An empty one.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// One with a text.
    pub fn of(name: &str, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::new(name) }
    }

    /// With one more attribute.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.attributes.push((name.to_owned(), value.into()));
        self
    }

    /// With one more child.
    #[must_use]
    pub fn child(mut self, child: Element) -> Self {
        self.children.push(child);
        self
    }

    /// With more children.
    #[must_use]
    pub fn children(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(attribute, _)| attribute == name).map(|(_, value)| value.as_str())
    }

    /// The first child of this name.
    pub fn first(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// All children of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The document.
    pub fn to_xml(&self) -> Result<String, XmlError> {
        let mut writer = Writer::new(Vec::new());
        self.write(&mut writer)?;
        String::from_utf8(writer.into_inner()).map_err(|error| XmlError::Malformed(error.to_string()))
    }

    fn write(&self, writer: &mut Writer<Vec<u8>>) -> Result<(), XmlError> {
        let values = self.attributes.iter().map(|(_, value)| value).chain([&self.text]);
        if values.into_iter().any(|value| value.chars().any(|c| c.is_control() && c != '\n' && c != '\t')) {
            return Err(XmlError::Control { element: self.name.clone() });
        }
        let mut put = |event| writer.write_event(event).map_err(|error| XmlError::Malformed(error.to_string()));
        let mut start = BytesStart::new(self.name.as_str());
        for (name, value) in &self.attributes {
            start.push_attribute((name.as_str(), value.as_str()));
        }
        if self.text.is_empty() && self.children.is_empty() {
            return put(Event::Empty(start));
        }
        put(Event::Start(start))?;
        if !self.text.is_empty() {
            put(Event::Text(BytesText::new(&self.text)))?;
        }
        for child in &self.children {
            child.write(writer)?;
        }
        writer.write_event(Event::End(BytesEnd::new(self.name.as_str()))).map_err(|error| XmlError::Malformed(error.to_string()))
    }

    /// Reads a document. References that XML does not define itself are refused, so none can be long.
    pub fn parse(text: &str) -> Result<Self, XmlError> {
        let malformed = |what: &dyn std::fmt::Display| XmlError::Malformed(what.to_string());
        let mut reader = Reader::from_str(text);
        let mut open: Vec<Element> = Vec::new();
        let mut root = None;
        loop {
            let ended = match reader.read_event().map_err(|error| malformed(&error))? {
                Event::Start(start) => {
                    if open.len() == DEPTH {
                        return Err(malformed(&"it is nested too deeply"));
                    }
                    open.push(element(&start)?);
                    None
                }
                Event::Empty(start) => Some(element(&start)?),
                Event::End(_) => open.pop(),
                Event::Text(text) => {
                    match open.last_mut() {
                        Some(inner) => inner.text.push_str(&text.xml10_content()),
                        None if text.trim().is_empty() => {}
                        None => return Err(malformed(&"there is text beside the root")),
                    }
                    None
                }
                Event::CData(text) => {
                    open.last_mut().ok_or_else(|| malformed(&"there is text beside the root"))?.text.push_str(&text);
                    None
                }
                Event::GeneralRef(reference) => {
                    let meant = format!("&{};", &*reference);
                    let meant = quick_xml::escape::unescape(&meant).map_err(|error| malformed(&error))?.into_owned();
                    open.last_mut().ok_or_else(|| malformed(&"there is text beside the root"))?.text.push_str(&meant);
                    None
                }
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => None,
                Event::Eof => break,
            };
            if let Some(ended) = ended {
                match open.last_mut() {
                    Some(outer) => outer.children.push(ended),
                    None if root.is_none() => root = Some(ended),
                    None => return Err(malformed(&"there are two roots")),
                }
            }
        }
        match root {
            Some(root) if open.is_empty() => Ok(root),
            _ => Err(malformed(&"it ends early")),
        }
    }
}

fn element(start: &BytesStart<'_>) -> Result<Element, XmlError> {
    let mut element = Element::new(start.local_name().as_ref());
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| XmlError::Malformed(error.to_string()))?;
        let value =
            attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0).map_err(|error| XmlError::Malformed(error.to_string()))?;
        element.attributes.push((attribute.key.as_ref().to_owned(), value.into_owned()));
    }
    Ok(element)
}

#[cfg(test)]
mod tests;
