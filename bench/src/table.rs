//! A table for a person, and for a page.

use std::fmt;

/// One table, and what a reader must know to read it.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// Names its place in the page.
    pub(crate) mark: &'static str,
    pub(crate) title: String,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) notes: Vec<String>,
}

impl Table {
    pub(crate) fn new(mark: &'static str, title: impl Into<String>, columns: &[&'static str]) -> Self {
        Self { mark, title: title.into(), columns: columns.to_vec(), rows: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// For the page.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = &str>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        let mut out = line(&mut self.columns.iter().copied());
        out.push_str(&line(&mut self.columns.iter().enumerate().map(|(n, _)| if n == 0 { "---" } else { "--:" })));
        for row in &self.rows {
            out.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        for note in &self.notes {
            out.push_str(&format!("\n{note}\n"));
        }
        out
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.title)?;
        let width = |n: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(n)).map(|cell| cell.chars().count());
            cells.chain(self.columns.get(n).map(|head| head.chars().count())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let head: Vec<String> = self.columns.iter().map(ToString::to_string).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            for (n, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if n == 0 {
                    write!(f, "  {cell:<width$}")?;
                } else {
                    write!(f, "  {cell:>width$}")?;
                }
            }
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))
    }
}

/// `1234567` as `1,234,567`.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0.4, 999.0, 1000.0, 1_234_567.0].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_table_is_the_same_for_the_page_and_for_the_terminal() {
        let mut table = Table::new("t", "Title", &["what", "ratio"]);
        table.row(["one".to_owned(), "0.9".to_owned()]);
        table.note("A note.");
        assert_eq!(table.markdown(), "| what | ratio |\n| --- | --: |\n| one | 0.9 |\n\nA note.\n");
        assert_eq!(table.to_string(), "\nTitle\n  what  ratio\n  one     0.9\n  A note.\n");
    }
}
