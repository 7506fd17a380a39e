//! One thing that is wrong with a file, as a person is told.

use std::fmt;

use egress_protocol::resource::conditions::cut;

/// The path of a fault that concerns the document, or the file, as a whole.
pub(crate) const WHOLE: &str = ".";

/// Of a value that has to be a string.
pub(crate) const NO_TEXT: &str = "must be a string";
/// YAML 1.1, which `kubectl` and we read, takes these words for booleans.
pub(crate) const NO_TEXT_BUT_BOOLEAN: &str =
    "must be a string, is a boolean: put it in quotes (a plain yes, no, on, off, y or n is one, too)";
pub(crate) const NO_TEXT_BUT_NUMBER: &str = "must be a string, is a number: put it in quotes";

/// One fault of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file, as it was named.
    pub file: String,
    /// Which document of the file, from 1; documents without content do not count. 0 when there is no telling.
    pub document: usize,
    /// The line, from 1, where the parser gives one.
    pub line: Option<usize>,
    /// What it is about: `Proxy default/px-1`, or `providers[1] "lab"`.
    pub object: Option<String>,
    /// The field, relative to the object: `spec.port`; `.` for the whole.
    pub path: String,
    /// What is wrong, without the value.
    pub reason: String,
}

impl Fault {
    /// The same in a sentence about the one file that is meant: `providers[1] "lab": kvm.hosts is required`.
    pub fn brief(&self) -> String {
        let about = self.object.as_ref().map(|object| format!("{object}: ")).unwrap_or_default();
        match self.path.as_str() {
            WHOLE => format!("{about}{}", self.reason),
            path => format!("{about}{path} {}", self.reason),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if self.document > 0 {
            write!(f, "document {}, ", self.document)?;
        }
        if let Some(object) = &self.object {
            write!(f, "{object}, ")?;
        }
        match self.path.as_str() {
            WHOLE => f.write_str(&self.reason),
            path => write!(f, "{path}: {}", self.reason),
        }
    }
}

/// Where the faults of one document are gathered.
#[derive(Debug)]
pub(crate) struct Sink<'a> {
    file: &'a str,
    document: usize,
    object: Option<String>,
    faults: Vec<Fault>,
}

impl<'a> Sink<'a> {
    pub(crate) const fn new(file: &'a str, document: usize) -> Self {
        Self { file, document, object: None, faults: Vec::new() }
    }

    /// What the faults that follow are about.
    pub(crate) fn about(&mut self, object: Option<String>) {
        self.object = object.map(|text| cut(text, 400));
    }

    pub(crate) fn push(&mut self, line: Option<usize>, path: impl Into<String>, reason: impl Into<String>) {
        self.faults.push(Fault {
            file: self.file.to_owned(),
            document: self.document,
            line,
            object: self.object.clone(),
            path: path.into(),
            reason: reason.into(),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.faults.len()
    }

    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }
}
