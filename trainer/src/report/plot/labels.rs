//! Places labels beside the ends of curves so that none lies on another.

/// Vertical space of one label, in pixels.
pub const LABEL_HEIGHT: f64 = 13.0;

/// Moves wanted heights apart by at least [`LABEL_HEIGHT`], as little as possible, within 0..`height`.
/// Gives a place for each, in the order asked; they spill below `height` only where they cannot fit.
///
/// # Source
/// Our choice: pool adjacent violators, the least-squares answer for labels in a fixed order.
pub fn spread_out(wanted: &[f64], height: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Without the room they need, the i-th label wants wanted - i·height; pools share one mean.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (i, index) in order.iter().enumerate() {
        let mut pool = (wanted[*index] - i as f64 * LABEL_HEIGHT, 1);
        while let Some(last) = pools.last().copied().filter(|last| last.0 >= pool.0) {
            let size = last.1 + pool.1;
            let sum = last.0 * last.1 as f64 + pool.0 * pool.1 as f64;
            pool = (sum / size as f64, size);
            pools.pop();
        }
        pools.push(pool);
    }
    let room = (height - LABEL_HEIGHT * wanted.len().saturating_sub(1) as f64).max(0.0);
    let starts = pools
        .iter()
        .flat_map(|(y, n)| std::iter::repeat_n(y.clamp(0.0, room), *n));
    let mut placed = vec![0.0; wanted.len()];
    for (i, (index, start)) in order.iter().zip(starts).enumerate() {
        placed[*index] = start + i as f64 * LABEL_HEIGHT;
    }
    placed
}

/// A name cut to `most` characters.
pub fn shorten(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    let kept: String = name.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap_and_keep_their_order() {
        let wanted = [50.0, 52.0, 51.0, 200.0];
        let placed = spread_out(&wanted, 220.0);
        assert_eq!(placed, [38.0, 64.0, 51.0, 200.0]);
    }

    #[test]
    fn labels_stay_inside() {
        let placed = spread_out(&[0.0, 0.0, 100.0, 100.0], 100.0);
        assert_eq!(placed, [0.0, 13.0, 87.0, 100.0]);
    }

    #[test]
    fn names_are_cut_at_characters() {
        assert_eq!(shorten("äöüß", 3), "äö…");
        assert_eq!(shorten("law", 3), "law");
    }
}
