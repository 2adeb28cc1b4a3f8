//! Colours of the domains and of the heatmaps, for light and dark pages, as CSS custom properties.
//!
//! Always holds: neighbours in the domains' order have hues far apart; colours repeat after 36
//! domains, and lines beyond the first 12 are also dashed, so that colour never stands alone.

use std::fmt::Write;

/// Steps of a heatmap's scale; odd, so that a diverging one has a middle.
pub const LEVELS: usize = 15;

/// Hues tell 12 domains apart; the next 12 have another lightness and another dash.
const HUES: usize = 12;
const LIGHT: [(f64, f64); 3] = [(0.60, 0.165), (0.43, 0.125), (0.72, 0.12)];
const DARK: [(f64, f64); 3] = [(0.70, 0.145), (0.85, 0.095), (0.56, 0.15)];

/// The class that gives a domain its colour as `--c`.
pub fn domain_class(domain: usize) -> String {
    format!("d{}", domain % (HUES * LIGHT.len()))
}

/// The class of a domain's dash pattern: `k0` is solid.
pub fn dash_class(domain: usize) -> &'static str {
    ["k0", "k1", "k2"][domain / HUES % 3]
}

/// The style rules of all colours.
pub fn style(domains: usize) -> String {
    let mut css = rules(domains, &LIGHT, false);
    let dark = rules(domains, &DARK, true);
    let _ = write!(
        css,
        "@media screen and (prefers-color-scheme:dark){{{dark}}}"
    );
    css
}

fn rules(domains: usize, tones: &[(f64, f64); 3], dark: bool) -> String {
    let mut css = String::new();
    for domain in 0..domains.min(HUES * tones.len()) {
        // 5 and 12 share no factor: steps of 150° meet every hue once.
        let hue = 25.0 + (domain * 5 % HUES) as f64 * 360.0 / HUES as f64;
        let (lightness, chroma) = tones[domain / HUES];
        let _ = write!(css, ".d{domain}{{--c:{}}}", hex(lightness, chroma, hue));
    }
    for level in 0..LEVELS {
        let at = level as f64 / (LEVELS - 1) as f64;
        let _ = write!(
            css,
            ".q{level}{{fill:{};background:{}}}",
            sequential(at, dark),
            sequential(at, dark)
        );
        let _ = write!(
            css,
            ".v{level}{{fill:{};background:{}}}",
            diverging(at, dark),
            diverging(at, dark)
        );
    }
    css
}

/// From the page's ground to a strong colour.
fn sequential(at: f64, dark: bool) -> String {
    let hue = 280.0 - 90.0 * at;
    match dark {
        false => hex(
            0.96 - 0.56 * at,
            0.02 + 0.12 * (at * 2.0).min(1.0),
            hue - 20.0,
        ),
        true => hex(
            0.25 + 0.60 * at,
            0.03 + 0.11 * (at * 2.0).min(1.0),
            hue - 20.0,
        ),
    }
}

/// Blue below the middle, orange above; the middle is near the page's ground.
fn diverging(at: f64, dark: bool) -> String {
    let signed = 2.0 * at - 1.0;
    let hue = if signed < 0.0 { 255.0 } else { 45.0 };
    let strength = signed.abs();
    match dark {
        false => hex(0.955 - 0.45 * strength, 0.155 * strength, hue),
        true => hex(0.29 + 0.45 * strength, 0.15 * strength, hue),
    }
}

/// OKLCH to sRGB, clamped to its gamut.
///
/// # Source
/// Björn Ottosson, "A perceptual color space for image processing" (2020).
fn hex(lightness: f64, chroma: f64, hue_degrees: f64) -> String {
    let hue = hue_degrees.to_radians();
    let (a, b) = (chroma * hue.cos(), chroma * hue.sin());
    let l = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let m = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let s = (lightness - 0.089_484_177_5 * a - 1.291_485_548 * b).powi(3);
    let linear = [
        4.076_741_662_1 * l - 3.307_711_591_3 * m + 0.230_969_929_2 * s,
        -1.268_438_004_6 * l + 2.609_757_401_1 * m - 0.341_319_396_5 * s,
        -0.004_196_086_3 * l - 0.703_418_614_7 * m + 1.707_614_701 * s,
    ];
    let mut text = String::from("#");
    for channel in linear {
        let encoded = match channel {
            c if c <= 0.003_130_8 => 12.92 * c,
            c => 1.055 * c.powf(1.0 / 2.4) - 0.055,
        };
        let _ = write!(
            text,
            "{:02x}",
            (encoded.clamp(0.0, 1.0) * 255.0).round() as u8
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oklch_gives_known_srgb_colours() {
        // Reference values of CSS Color 4: white, black, and sRGB red.
        assert_eq!(hex(1.0, 0.0, 0.0), "#ffffff");
        assert_eq!(hex(0.0, 0.0, 0.0), "#000000");
        assert_eq!(hex(0.627_955, 0.257_683, 29.233_9), "#ff0000");
    }

    #[test]
    fn twenty_two_domains_have_distinct_looks() {
        let mut looks: Vec<_> = (0..22).map(|d| (domain_class(d), dash_class(d))).collect();
        looks.sort();
        looks.dedup();
        assert_eq!(looks.len(), 22);
        let css = rules(22, &LIGHT, false);
        let mut colours: Vec<_> = css.matches("{--c:").collect();
        assert_eq!(colours.len(), 22);
        colours.clear();
    }
}
