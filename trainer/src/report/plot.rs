//! Plots as static inline SVG.
//!
//! In: series, scales and words. Out: markup. The SVG's viewport is the plotting area itself:
//! horizontal positions are percentages and vertical ones pixels, so that a plot fills any width
//! while its text keeps its size; labels stand in the margins that the style sheet leaves around it.
//! Curves lie in a nested SVG of [`WIDTH`] units that is stretched, with strokes that are not.
//! Always holds: an empty series becomes a sentence that says why.

mod area;
mod bars;
mod frame;
mod heatmap;
mod labels;
mod line;
mod path;
mod readout;
mod scale;
mod scatter;
mod spark;

pub use area::StackedArea;
pub use bars::{ShareBar, share_bars};
pub use frame::{Frame, StepAxis, no_data, remark};
pub use heatmap::{Heatmap, Shading};
pub use line::{Line, LinePlot, Look, Vertical};
pub use scatter::{ScatterPlot, ScatterPoint};
pub use spark::{SmallMultiple, sparkline};

/// Units across a stretched plotting area.
const WIDTH: f64 = 1000.0;
