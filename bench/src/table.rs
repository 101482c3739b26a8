//! Results for people (aligned columns) and for programs (JSON).

use clap::ValueEnum;
use serde::Serialize;

/// The form of the results on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Aligned columns.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

impl Output {
    /// Prints `rows` under `heads`, or `document`.
    pub(crate) fn print(
        self,
        heads: &[&str],
        rows: &[Vec<String>],
        document: &impl Serialize,
    ) -> anyhow::Result<()> {
        match self {
            Self::Table => print!("{}", aligned(heads, rows)),
            Self::Json => println!("{}", serde_json::to_string_pretty(document)?),
        }
        Ok(())
    }
}

/// The first column to the left, the others to the right.
fn aligned(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&heads).chain(rows).collect();
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..heads.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The middle one of `values`.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["floor".to_owned(), "5.4".to_owned()], vec!["a".to_owned(), "12.34".to_owned()]];
        assert_eq!(aligned(&["name", "us"], &rows), "name      us\nfloor    5.4\na      12.34\n");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
    }
}
