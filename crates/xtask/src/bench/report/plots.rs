//! The drawings: for each suite its times beside those of others, and its curves.

use crate::bench::figures::{Curves, Row, shown};
use crate::bench::record::SuiteRecord;
use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;

const WIDTH: u32 = 860;
const CURVES_HEIGHT: u32 = 380;
const ROW_HEIGHT: i32 = 20;
/// Where the names end and the scale begins.
const SCALE_LEFT: i32 = 420;
const SCALE_RIGHT: i32 = 790;
const TOP: i32 = 34;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(60, 60, 60);
const FAINT: RGBColor = RGBColor(222, 222, 222);
const OURS: RGBColor = RGBColor(31, 105, 178);
const OTHERS: RGBColor = RGBColor(204, 112, 20);
const LINES: [RGBColor; 5] = [
    OURS,
    OTHERS,
    RGBColor(60, 140, 70),
    RGBColor(140, 75, 150),
    RGBColor(110, 110, 110),
];

/// A drawing.
pub(super) struct Plot {
    /// Its file's name.
    pub(super) file: String,
    /// What it shows.
    pub(super) title: String,
    /// Itself.
    pub(super) svg: String,
}

/// All drawings of a suite.
pub(super) fn of(suite: &SuiteRecord) -> anyhow::Result<Vec<Plot>> {
    let mut plots = Vec::new();
    let name = &suite.name;
    if let Some(svg) = rows(suite)? {
        plots.push(Plot {
            file: format!("{name}.svg"),
            title: format!("{name}: medians, from the fastest to nine tenths"),
            svg,
        });
    }
    for (at, of) in suite.findings.curves.iter().enumerate() {
        if let Some(svg) = curves(of)? {
            plots.push(Plot {
                file: format!("{name}-{}.svg", at + 1),
                title: of.title.clone(),
                svg,
            });
        }
    }
    Ok(plots)
}

/// Any failure to draw; the drawings are made in memory, so there should be none.
fn undrawn(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("a plot cannot be drawn: {error}")
}

/// The powers of ten around what is drawn.
fn decades(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let logs: Vec<f64> = values
        .filter(|v| *v > 0.0 && v.is_finite())
        .map(f64::log10)
        .collect();
    let low = logs.iter().copied().reduce(f64::min)?.floor();
    let high = logs.iter().copied().reduce(f64::max)?.ceil();
    Some((low, if high > low { high } else { low + 1.0 }))
}

fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    let mut ticks = vec![low];
    while let Some(last) = ticks.last().copied().filter(|last| last + 1.0 <= high) {
        ticks.push(last + 1.0);
    }
    ticks
}

/// Times of everybody, a line for each, over a logarithmic scale.
fn rows(suite: &SuiteRecord) -> anyhow::Result<Option<String>> {
    let compared = suite.findings.figures.iter();
    let compared: Vec<_> = compared
        .filter(|f| f.unit == "ms" && f.rows.len() > 1)
        .collect();
    let all = || compared.iter().flat_map(|figure| &figure.rows);
    let ends = all().flat_map(|row| [row.figures.min, row.figures.p90]);
    let Some(scale) = decades(ends) else {
        return Ok(None);
    };
    let lines = i32::try_from(all().count() + compared.len())?;
    let height = TOP + lines * ROW_HEIGHT + 30;
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (WIDTH, u32::try_from(height)?)).into_drawing_area();
        area.fill(&WHITE).map_err(undrawn)?;
        for tick in ticks(scale) {
            let x = at(scale, 10_f64.powf(tick));
            let line = vec![(x, TOP), (x, height - 24)];
            area.draw(&PathElement::new(line, FAINT)).map_err(undrawn)?;
            let label = format!("{} ms", shown_power(tick));
            write(&area, &label, (x - 12, height - 18), 12, INK)?;
        }
        let mut y = TOP - 20;
        for figure in &compared {
            y += ROW_HEIGHT;
            write(&area, &figure.what, (10, y), 14, INK)?;
            for (index, row) in figure.rows.iter().enumerate() {
                y += ROW_HEIGHT;
                let colour = if index == 0 { OURS } else { OTHERS };
                one_row(&area, row, scale, y, colour)?;
            }
        }
        area.present().map_err(undrawn)?;
    }
    Ok(Some(svg))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn one_row(
    area: &Area<'_>,
    row: &Row,
    scale: (f64, f64),
    y: i32,
    colour: RGBColor,
) -> anyhow::Result<()> {
    let figures = &row.figures;
    write(area, &row.who, (26, y), 13, colour)?;
    let middle = y + 7;
    let whisker = vec![
        (at(scale, figures.min), middle),
        (at(scale, figures.p90), middle),
    ];
    area.draw(&PathElement::new(whisker, colour.stroke_width(2)))
        .map_err(undrawn)?;
    let median = at(scale, figures.median);
    area.draw(&Circle::new((median, middle), 4, colour.filled()))
        .map_err(undrawn)?;
    write(
        area,
        &shown(figures.median),
        (SCALE_RIGHT + 14, y),
        13,
        colour,
    )
}

fn write(
    area: &Area<'_>,
    text: &str,
    place: (i32, i32),
    size: u32,
    colour: RGBColor,
) -> anyhow::Result<()> {
    let style = (FONT, size).into_font().color(&colour);
    area.draw(&Text::new(text, place, style)).map_err(undrawn)
}

/// Where a value stands on the scale.
fn at((low, high): (f64, f64), value: f64) -> i32 {
    let part = (value.max(1e-9).log10() - low) / (high - low);
    #[expect(clippy::cast_possible_truncation, reason = "a place on the drawing")]
    let reach = (part.clamp(0.0, 1.0) * f64::from(SCALE_RIGHT - SCALE_LEFT)) as i32;
    SCALE_LEFT + reach
}

fn shown_power(exponent: f64) -> String {
    let value = 10_f64.powf(exponent);
    if value >= 1.0 {
        format!("{value:.0}")
    } else {
        format!("{value}")
    }
}

/// A direction of a chart: how values are placed, and where there are lines.
#[derive(Clone)]
struct Axis {
    logarithmic: bool,
    /// As they are placed.
    ends: (f64, f64),
    ticks: Vec<f64>,
}

impl Axis {
    fn over(values: &[f64], logarithmic: bool) -> Option<Self> {
        if logarithmic {
            let ends = decades(values.iter().copied())?;
            return Some(Self {
                logarithmic,
                ends,
                ticks: ticks(ends)
                    .into_iter()
                    .map(|tick| 10_f64.powf(tick))
                    .collect(),
            });
        }
        let most = values.iter().copied().reduce(f64::max)?;
        let step = 10_f64.powf(most.max(1e-9).log10().floor());
        let step = if most / step < 3.0 { step / 2.0 } else { step };
        let mut ticks = vec![0.0];
        while let Some(last) = ticks.last().copied().filter(|last| *last < most) {
            ticks.push(last + step);
        }
        Some(Self {
            logarithmic,
            ends: (0.0, ticks.last().copied().unwrap_or(most)),
            ticks,
        })
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let placed = if self.logarithmic {
            value.max(1e-9).log10()
        } else {
            *value
        };
        let part = (placed - self.ends.0) / (self.ends.1 - self.ends.0);
        #[expect(clippy::cast_possible_truncation, reason = "a place on the drawing")]
        let reach = (part * f64::from(limit.1 - limit.0)) as i32;
        limit.0 + reach
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        let ends = (self.ticks.first().copied(), self.ticks.last().copied());
        ends.0.unwrap_or_default()..ends.1.unwrap_or_default()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        format!("{value}")
    }
}

fn curves(of: &Curves) -> anyhow::Result<Option<String>> {
    let points = || of.lines.iter().flat_map(|(_, points)| points);
    let (xs, ys): (Vec<f64>, Vec<f64>) = points().copied().unzip();
    let (Some(x), Some(y)) = (Axis::over(&xs, of.x.1), Axis::over(&ys, of.y.1)) else {
        return Ok(None);
    };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, CURVES_HEIGHT)).into_drawing_area();
        area.fill(&WHITE).map_err(undrawn)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&of.title, (FONT, 16))
            .margin(14)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)
            .map_err(undrawn)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc(&of.x.0)
            .y_desc(&of.y.0)
            .draw()
            .map_err(undrawn)?;
        for ((name, points), colour) in of.lines.iter().zip(LINES.iter().cycle()) {
            chart
                .draw_series(
                    LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3),
                )
                .map_err(undrawn)?
                .label(name)
                .legend(|(lx, ly)| PathElement::new(vec![(lx, ly), (lx + 16, ly)], *colour));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(FAINT)
            .draw()
            .map_err(undrawn)?;
        area.present().map_err(undrawn)?;
    }
    Ok(Some(svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_drawn_with_all_their_lines() {
        let of = Curves {
            title: "Cost".to_owned(),
            x: ("files".to_owned(), true),
            y: ("ms".to_owned(), false),
            lines: vec![
                ("first".to_owned(), vec![(1.0, 2.0), (1_000.0, 3.0)]),
                ("second".to_owned(), vec![(1.0, 20.0), (1_000.0, 30.0)]),
            ],
        };
        let svg = curves(&of).expect("can be drawn").expect("has points");
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        for word in ["Cost", "files", "first", "second", "1000"] {
            assert!(svg.contains(word), "{word} is missing: {svg}");
        }
    }

    #[test]
    fn nothing_is_no_drawing() {
        let of = Curves {
            title: String::new(),
            x: (String::new(), true),
            y: (String::new(), true),
            lines: Vec::new(),
        };
        assert!(curves(&of).expect("is no error").is_none());
    }

    #[test]
    fn a_scale_has_whole_decades() {
        assert_eq!(decades([0.02, 4.0].into_iter()), Some((-2.0, 1.0)));
        assert_eq!(ticks((-2.0, 1.0)), [-2.0, -1.0, 0.0, 1.0]);
        assert_eq!(decades([10.0].into_iter()), Some((1.0, 2.0)));
        assert_eq!(decades(std::iter::empty()), None);
    }
}
