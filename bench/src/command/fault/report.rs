//! What a scenario reports: figures beside their bars.

use serde::Serialize;

use crate::process;

/// All that one run of a scenario found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: &'static str,
    machine: String,
    /// What was done, in a sentence or two.
    done: String,
    figures: Vec<Figure>,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    what: String,
    /// `None`: it did not happen while the scenario waited for it.
    value: Option<f64>,
    unit: &'static str,
    /// What it may be at most; without one it is only there to compare.
    bar: Option<f64>,
    reached: Option<bool>,
}

impl Figure {
    /// A figure without a bar.
    pub(crate) fn of(what: impl Into<String>, value: impl Into<Option<f64>>, unit: &'static str) -> Self {
        Self { what: what.into(), value: value.into(), unit, bar: None, reached: None }
    }

    /// A figure that may be `bar` at most, and must be there.
    pub(crate) fn at_most(
        what: impl Into<String>,
        value: impl Into<Option<f64>>,
        unit: &'static str,
        bar: f64,
    ) -> Self {
        let plain = Self::of(what, value, unit);
        let reached = plain.value.is_some_and(|value| value <= bar);
        Self { bar: Some(bar), reached: Some(reached), ..plain }
    }

    fn line(&self) -> [String; 4] {
        let value =
            self.value.map_or_else(|| "never".to_owned(), |value| format!("{} {}", short(value), self.unit));
        let bar = self.bar.map_or_else(String::new, |bar| format!("<= {} {}", short(bar), self.unit));
        let reached = self.reached.map_or("", |reached| if reached { "reached" } else { "not reached" });
        [self.what.clone(), value.trim().to_owned(), bar.trim().to_owned(), reached.to_owned()]
    }
}

/// Whole numbers as they are, others with two places.
fn short(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

impl Report {
    pub(crate) fn new(scenario: &'static str, done: impl Into<String>, figures: Vec<Figure>) -> Self {
        Self { scenario, machine: process::machine(), done: done.into(), figures }
    }

    /// Whether every bar is reached.
    pub(crate) fn reached(&self) -> bool {
        self.figures.iter().all(|figure| figure.reached != Some(false))
    }

    /// For people.
    pub(crate) fn print(&self) {
        println!("{}\n{}\n{}\n", self.scenario, self.machine, self.done);
        let lines: Vec<[String; 4]> = self.figures.iter().map(Figure::line).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2)];
        for [what, value, bar, reached] in &lines {
            let line =
                format!("{what:<0$}  {value:>1$}  {bar:>2$}  {reached}", widths[0], widths[1], widths[2]);
            println!("{}", line.trim_end());
        }
        if self.figures.iter().any(|figure| figure.bar.is_some()) {
            println!("\n{}", if self.reached() { "reached" } else { "not reached" });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_needs_a_figure_that_is_small_enough() {
        let report = |value| Report::new("s", "", vec![Figure::at_most("x", value, "s", 2.0)]);
        assert!(report(Some(2.0)).reached());
        assert!(!report(Some(2.1)).reached());
        assert!(!report(None).reached(), "what never happened reached nothing");
        assert!(Report::new("s", "", vec![Figure::of("x", None, "s")]).reached(), "nothing was asked of it");
    }

    #[test]
    fn a_line_says_figure_bar_and_verdict() {
        let line = Figure::at_most("slowest send", 31.0, "ms", 1_000.0).line();
        assert_eq!(line, ["slowest send", "31 ms", "<= 1000 ms", "reached"]);
        assert_eq!(Figure::of("gone", None, "s").line(), ["gone", "never", "", ""]);
    }
}
