//! Line charts as SVG, legible on light and on dark pages.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 5] = ["#3b82c4", "#d9822b", "#3d9970", "#b10dc9", "#c0504d"];
const INK: &str = "#808080";

/// A chart with lines over one axis.
pub(crate) struct Chart {
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    pub is_logarithmic: bool,
    pub lines: Vec<Line>,
}

/// A line; one without a name has the colour of the line before it.
pub(crate) struct Line {
    name: &'static str,
    points: Vec<(f64, f64)>,
    style: Style,
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Line,
    Thin,
    Dots,
}

impl Line {
    pub(crate) fn new(name: &'static str, points: Vec<(f64, f64)>) -> Line {
        Line { name, points, style: Style::Line }
    }

    pub(crate) fn thin(points: Vec<(f64, f64)>) -> Line {
        Line { name: "", points, style: Style::Thin }
    }

    pub(crate) fn dots(points: Vec<(f64, f64)>) -> Line {
        Line { name: "", points, style: Style::Dots }
    }
}

/// An axis from numbers to pixels.
struct Axis {
    low: f64,
    high: f64,
    begin: f64,
    end: f64,
    is_logarithmic: bool,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, (begin, end): (f64, f64), is_log: bool) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (low, high) = (low.min(value), high.max(value));
        }
        if is_log {
            (low, high) = (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()));
        } else {
            (low, high) = (0.0, high * 1.1);
        }
        Axis { low, high, begin, end, is_logarithmic: is_log }
    }

    fn at(&self, value: f64) -> f64 {
        let share = match self.is_logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.begin + share * (self.end - self.begin)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let (mut ticks, mut tick) = (Vec::new(), self.low);
            while tick <= self.high * 1.001 {
                ticks.push(tick);
                tick *= 10.0;
            }
            return ticks;
        }
        let rough = (self.high - self.low) / 5.0;
        let base = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * base).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        (0..).map(|i| f64::from(i) * step).take_while(|tick| *tick <= self.high).collect()
    }
}

impl Chart {
    /// The chart.
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let is_log = self.is_logarithmic;
        let x = Axis::new(points().map(|p| p.0), (LEFT, WIDTH - RIGHT), is_log);
        let y = Axis::new(points().map(|p| p.1), (HEIGHT - BOTTOM, TOP), is_log);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\n"
        );
        let text = |svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str| {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
            );
        };
        text(&mut svg, (LEFT, 20.0), "start", self.title);
        text(&mut svg, ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0), "middle", self.x);
        text(&mut svg, (8.0, TOP - 8.0), "start", self.y);
        let rule = |svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), opacity: f64| {
            let _ = writeln!(
                svg,
                "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" \
                 stroke=\"{INK}\" stroke-opacity=\"{opacity}\"/>"
            );
        };
        for tick in y.ticks() {
            let at = y.at(tick);
            rule(&mut svg, (LEFT, at), (WIDTH - RIGHT, at), 0.3);
            text(&mut svg, (LEFT - 6.0, at + 4.0), "end", &number(tick));
        }
        for tick in x.ticks() {
            let at = x.at(tick);
            rule(&mut svg, (at, HEIGHT - BOTTOM), (at, HEIGHT - BOTTOM + 5.0), 1.0);
            text(&mut svg, (at, HEIGHT - BOTTOM + 18.0), "middle", &number(tick));
        }
        self.draw(&mut svg, &x, &y);
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let mut named = 0;
        for line in &self.lines {
            named += usize::from(line.style == Style::Line);
            let colour = COLOURS[named.saturating_sub(1) % COLOURS.len()];
            if line.style == Style::Dots {
                for &(a, b) in &line.points {
                    let (a, b) = (x.at(a), y.at(b));
                    let _ = writeln!(
                        svg,
                        "<circle cx=\"{a:.1}\" cy=\"{b:.1}\" r=\"5\" fill=\"none\" \
                         stroke=\"{colour}\" stroke-width=\"2\"/>"
                    );
                }
                continue;
            }
            let width = if line.style == Style::Line { 2.5 } else { 0.8 };
            let at = |&(a, b): &(f64, f64)| format!("{:.1},{:.1}", x.at(a), y.at(b));
            let path: Vec<String> = line.points.iter().map(at).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
                 stroke-width=\"{width}\"/>",
                path.join(" ")
            );
            if !line.name.is_empty() {
                let at = TOP + 16.0 * named as f64;
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{at:.1}\" fill=\"{colour}\">{}</text>",
                    WIDTH - RIGHT + 12.0,
                    line.name
                );
            }
        }
    }
}

fn number(x: f64) -> String {
    let text = format!("{x:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
