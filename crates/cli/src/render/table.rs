//! Columns of text.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Table as Grid};
use waypost_net::plain::plain;

/// A table with titles. Cells have no control characters, whatever they are made from.
#[derive(Debug)]
pub struct Table {
    grid: Grid,
    columns: usize,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(titles: &[&str]) -> Self {
        let mut grid = Grid::new();
        grid.load_style(NOTHING);
        grid.set_header(titles.iter().map(Cell::new));
        Self { grid, columns: titles.len() }
    }

    /// Adds a row, one text a column. An empty cell shows as `-`, so that columns can be counted.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| match plain(&cell) {
            empty if empty.is_empty() => Cell::new("-"),
            text => Cell::new(text),
        });
        self.grid.add_row(cells);
    }

    /// The whole, with a line end; no blanks at line ends.
    #[must_use]
    pub fn text(mut self) -> String {
        for column in 0..self.columns {
            if let Some(column) = self.grid.column_mut(column) {
                column.set_padding((0, 2));
            }
        }
        let mut text = self.grid.trim_fmt();
        text.push('\n');
        text
    }
}
