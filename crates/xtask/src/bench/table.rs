//! Figures on a terminal.

use super::figures::{Figure, Summary, shown};

/// All figures, a row for everybody who was measured.
pub(crate) fn table(figures: &[Figure], judged: bool) -> String {
    let head = ["", "who", "median", "[min, p90]", "of ours", "n", "target"];
    let mut rows = vec![head.map(str::to_owned)];
    for figure in figures {
        for (at, row) in figure.rows.iter().enumerate() {
            let first = at == 0;
            rows.push([
                if first {
                    format!("{} ({})", figure.what, figure.unit)
                } else {
                    String::new()
                },
                row.who.clone(),
                shown(row.figures.median),
                spread(&row.figures),
                if first {
                    String::new()
                } else {
                    shown(figure.ratio(row))
                },
                row.figures.count.to_string(),
                if first {
                    targets(figure, judged).join("; ")
                } else {
                    String::new()
                },
            ]);
        }
    }
    columns(&rows)
}

/// The smallest and the nine tenths; nothing for a single number.
pub(crate) fn spread(figures: &Summary) -> String {
    if figures.count == 1 {
        return String::new();
    }
    format!("[{}, {}]", shown(figures.min), shown(figures.p90))
}

/// Each target, and whether it is met.
pub(crate) fn targets(figure: &Figure, judged: bool) -> Vec<String> {
    let target = |target| {
        let words = super::figures::Target::words(target, &figure.unit);
        let met = match figure.met(target) {
            None => "not measured",
            Some(true) if judged => "met",
            Some(false) if judged => "NOT MET",
            Some(true) => "met, on a disturbed machine",
            Some(false) => "not met, on a disturbed machine",
        };
        format!("{words}: {met}")
    };
    figure.targets.iter().map(target).collect()
}

/// Rows with columns as wide as their widest cell.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("{cell:width$}  "));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::{Samples, Target};

    #[test]
    fn a_missed_target_is_said_and_on_a_disturbed_machine_not_shouted() {
        let figure = Figure::new("a run", "ms", &Samples::one(6.1))
            .beside("bare", &Samples::one(2.0))
            .target(Target::TimesOf(3.0, "bare".to_owned()));
        let text = table(std::slice::from_ref(&figure), true);
        assert!(text.contains("NOT MET") && text.contains("0.328"), "{text}");
        let text = table(&[figure], false);
        assert!(
            !text.contains("NOT MET") && text.contains("disturbed"),
            "{text}"
        );
    }
}
