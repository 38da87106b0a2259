//! Small lines of an hour, as SVG that the server draws. Without a script, and without styles of
//! their own: the sheet colours them.

use maud::{Markup, html};

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 44.0;
/// Room for the line's own width.
const MARGIN: f64 = 2.0;

/// Draws one value per bin, the oldest first; where there is none, the line has a gap. `label` says
/// in words what it shows.
pub(super) fn draw_sparkline(values: &[Option<f64>], label: &str) -> Markup {
    let highest = values.iter().flatten().copied().fold(0.0, f64::max);
    let step = WIDTH / (values.len().max(2) - 1) as f64;
    let height = |value: f64| {
        let part = if highest > 0.0 { value / highest } else { 0.0 };
        HEIGHT - MARGIN - part * (HEIGHT - 2.0 * MARGIN)
    };
    let mut lines: Vec<Vec<[f64; 2]>> = vec![Vec::new()];
    for (at, value) in values.iter().enumerate() {
        match (value, lines.last_mut()) {
            (Some(value), Some(line)) => line.push([at as f64 * step, height(*value)]),
            (None, Some(line)) if !line.is_empty() => lines.push(Vec::new()),
            _ => {}
        }
    }
    html! {
        svg class="spark" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none"
            role="img" aria-label=(label) focusable="false" {
            @for line in lines.iter().filter(|line| !line.is_empty()) {
                polygon class="spark-area" points=(area_points(line)) {}
                polyline class="spark-line" points=(line_points(line)) {}
            }
        }
    }
}

fn line_points(line: &[[f64; 2]]) -> String {
    let mut points: Vec<String> = line.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
    // One point alone would be nothing to see.
    if let ([[x, y]], 1) = (line, points.len()) {
        points.insert(0, format!("{:.1},{y:.1}", (x - 2.0).max(0.0)));
    }
    points.join(" ")
}

fn area_points(line: &[[f64; 2]]) -> String {
    let ends = [line.last(), line.first()];
    let foot = ends.into_iter().flatten().map(|[x, _]| format!("{x:.1},{HEIGHT}"));
    let foot: Vec<String> = foot.collect();
    format!("{} {}", line_points(line), foot.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_gaps_where_nothing_is_known() {
        let values = [Some(1.0), Some(2.0), None, None, Some(0.0)];
        let drawn = draw_sparkline(&values, "requests \"<b>\"").into_string();
        assert_eq!(drawn.matches("<polyline").count(), 2, "{drawn}");
        assert!(drawn.contains("0.0,22.0 60.0,2.0"), "{drawn}");
        assert!(drawn.contains("aria-label=\"requests &quot;&lt;b&gt;&quot;\""), "{drawn}");
        assert!(!drawn.contains("style="), "{drawn}");
        let nothing = draw_sparkline(&[None, None], "nothing").into_string();
        assert!(!nothing.contains("<poly"), "{nothing}");
    }
}
