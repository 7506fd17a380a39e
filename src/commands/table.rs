//! Tables for people: columns as wide as their widest cell.

/// A header and rows. The first cell of a row is its key: what `-w` tells rows apart by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Column titles.
    pub columns: Vec<&'static str>,
    /// Each as long as `columns`.
    pub rows: Vec<Row>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Unique in the table.
    pub key: String,
    /// What is shown.
    pub cells: Vec<String>,
}

impl Table {
    /// The columns' widths.
    pub fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|c| c.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    /// The header line.
    pub fn header(&self, widths: &[usize]) -> String {
        line(self.columns.iter().copied(), widths)
    }
}

/// One line, cells padded to `widths` and two blanks apart.
pub fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let mut out = String::new();
    for (cell, width) in cells.zip(widths) {
        let cell: String = cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        out.push_str(&format!("{cell:width$}  "));
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let table = Table {
            columns: vec!["NAME", "PHASE"],
            rows: vec![Row { key: "a".into(), cells: vec!["a-long-name".into(), "Ready".into()] }],
        };
        let widths = table.widths();
        assert_eq!(table.header(&widths), "NAME         PHASE");
        assert_eq!(line(table.rows[0].cells.iter().map(String::as_str), &widths), "a-long-name  Ready");
    }
}
