//! Path data: curves with gaps, bands, and numbers short enough for a small page.

use std::fmt::Write;

/// A point of a curve in a stretched plotting area; `None` is a gap.
pub type Point = Option<(f64, f64)>;

/// A curve through the points, broken at gaps; a point alone between gaps is a dot.
pub fn curve(points: impl Iterator<Item = Point>) -> String {
    let mut path = String::new();
    let mut run = 0;
    for point in points {
        let Some((x, y)) = point else {
            close_run(&mut path, run);
            run = 0;
            continue;
        };
        path.push(if run == 0 { 'M' } else { 'L' });
        push_pair(&mut path, x, y);
        run += 1;
    }
    close_run(&mut path, run);
    path
}

/// The area between two curves, `(x, upper, lower)`, in pieces between gaps.
pub fn band(points: &[Option<(f64, f64, f64)>]) -> String {
    let mut path = String::new();
    for piece in points.split(Option::is_none) {
        let piece = || piece.iter().flatten();
        if piece().count() < 2 {
            continue;
        }
        let upper = piece().map(|(x, y, _)| (x, y));
        let lower = piece().rev().map(|(x, _, y)| (x, y));
        for (i, (x, y)) in upper.chain(lower).enumerate() {
            path.push(if i == 0 { 'M' } else { 'L' });
            push_pair(&mut path, *x, *y);
        }
        path.push('Z');
    }
    path
}

/// One decimal at most.
pub fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

fn push_pair(path: &mut String, x: f64, y: f64) {
    let _ = write!(path, "{} {}", short(x), short(y));
}

/// A run of one point needs a line of no length, which round caps make a dot.
fn close_run(path: &mut String, run: usize) {
    if run == 1 {
        path.push_str("h0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_break_curves_and_lone_points_are_dots() {
        let points = [
            Some((0.0, 1.0)),
            Some((1.0, 2.25)),
            None,
            Some((3.0, 4.0)),
            None,
        ];
        assert_eq!(curve(points.into_iter()), "M0 1L1 2.2M3 4h0");
    }

    #[test]
    fn bands_close_their_pieces() {
        let points = [
            Some((0.0, 1.0, 5.0)),
            Some((1.0, 2.0, 6.0)),
            None,
            Some((3.0, 1.0, 2.0)),
        ];
        assert_eq!(band(&points), "M0 1L1 2L1 6L0 5Z");
    }
}
