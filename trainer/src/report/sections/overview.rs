//! What was run, the figures that count, and the run in three sentences.

use maud::{Markup, html};

use super::View;
use crate::report::number::{Format, grouped};
use crate::report::record::{EvalRecord, Maybe};

/// Title, warnings, figures, sentences.
pub fn render(view: &View) -> Markup {
    let header = &view.run.header;
    html! {
        header {
            h1 { "Run of policy " em { (header.policy) } }
            p.sub {
                @if let Some(preset) = &header.preset { (preset) " · " }
                (header.domains.len()) " domains"
                @if let Some(seed) = header.seed { " · seed " (seed) }
                @if let Some(index) = &header.index { " · index " code title=(index) { (short_index(index)) } }
                @if let Some(target) = target(view) { " · target: " (target) }
            }
            @for warning in warnings(view) { p.warning { (warning) } }
        }
        section {
            div.tiles { @for tile in tiles(view) { (tile) } }
            @let story = story(view);
            @if !story.is_empty() { p.story { @for sentence in story { (sentence) " " } } }
        }
    }
}

fn short_index(index: &str) -> String {
    index.chars().take(12).collect()
}

/// Domains named of a target.
const TARGET_NAMES: usize = 6;

/// What the run was to get good at, heaviest first, where that was not every domain alike.
fn target(view: &View) -> Option<String> {
    let mut weights: Vec<_> = view
        .domains()
        .filter_map(|d| Some((d.target.filter(|t| *t > 0.0)?, &d.name)))
        .collect();
    weights.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named = weights.iter().take(TARGET_NAMES);
    let mut parts: Vec<_> = named
        .map(|(weight, name)| format!("{name} {}", Format::Percent.write(*weight)))
        .collect();
    if weights.len() > TARGET_NAMES {
        parts.push(format!("{} others", weights.len() - TARGET_NAMES));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// What a reader must know before trusting the rest.
fn warnings(view: &View) -> Vec<String> {
    let (totals, seen) = (&view.run.totals, view.run.seen);
    let mut warnings = Vec::new();
    let done = totals.last_step.map_or(0, |step| step.saturating_add(1));
    if let Some(planned) = view
        .run
        .header
        .total_steps
        .filter(|planned| done < *planned)
    {
        let (done, planned) = (grouped(done), grouped(planned));
        warnings.push(format!(
            "Not finished: {done} of {planned} steps are logged."
        ));
    }
    if seen.cut {
        warnings.push(
            "The last line of the log is incomplete (cut short, or being written) and is left out."
                .to_owned(),
        );
    }
    if totals.repeated_steps > 0 {
        let steps = grouped(totals.repeated_steps);
        warnings.push(format!(
            "{steps} step records repeat or go back and are left out."
        ));
    }
    if seen.unknown > 0 {
        let lines = grouped(seen.unknown);
        warnings.push(format!(
            "{lines} records of kinds unknown to this version are left out."
        ));
    }
    warnings
}

fn tile(name: &str, value: String, detail: String) -> Markup {
    html! { div.tile { span { (name) } b { (value) } small { (detail) } } }
}

fn tiles(view: &View) -> Vec<Markup> {
    let (run, totals) = (view.run, &view.run.totals);
    let header = &run.header;
    let done = totals.last_step.map_or(0, |step| step.saturating_add(1));
    let batch = match (header.batch_size, header.sequence_length) {
        (Some(batch), Some(length)) => format!("{} × {} a step", grouped(batch), grouped(length)),
        _ => String::new(),
    };
    let share = (totals.step_seconds > 0.0).then(|| totals.scheduler_seconds / totals.step_seconds);
    let rate = (totals.step_seconds > 0.0).then(|| totals.timed_tokens / totals.step_seconds);
    let per_step = (totals.steps > 0).then(|| totals.step_seconds / totals.steps as f64);
    let agent = match (header.agent_parameters, header.parameters) {
        (Some(agent), Some(model)) if agent > 0 && model > 0 => {
            let share = Format::Percent.write(agent as f64 / model as f64);
            format!("agent {} ({share})", Format::Count.write(agent as f64))
        }
        _ => "no agent networks".to_owned(),
    };
    let count = |value: Option<u64>| Format::Count.write_maybe(value.map(|v| v as f64));
    let mut tiles = vec![
        perplexity_tile(view, "Macro perplexity", |e| e.macro_perplexity),
        perplexity_tile(view, "Base perplexity", |e| e.base_perplexity),
        tile("Tokens", Format::Count.write(totals.tokens as f64), batch),
        tile(
            "Steps",
            grouped(done),
            header
                .total_steps
                .map_or_else(String::new, |n| format!("of {}", grouped(n))),
        ),
        tile(
            "Tokens per second",
            Format::Count.write_maybe(rate),
            format!("{} a step", Format::Seconds.write_maybe(per_step)),
        ),
        tile(
            "Scheduler's share",
            Format::Percent.write_maybe(share),
            format!(
                "{} of step time",
                Format::Seconds.write(totals.scheduler_seconds)
            ),
        ),
        tile(
            "Time",
            Format::Seconds.write(totals.step_seconds + totals.evaluation_seconds),
            format!(
                "{} evaluating",
                Format::Seconds.write(totals.evaluation_seconds)
            ),
        ),
        tile("Model parameters", count(header.parameters), agent),
    ];
    if header.target().is_some() {
        let target = perplexity_tile(view, "Target perplexity", |e| e.target_perplexity);
        tiles.insert(0, target);
    }
    tiles
}

fn perplexity_tile(view: &View, name: &str, value: impl Fn(&EvalRecord) -> Maybe) -> Markup {
    let points = view.run.evaluations.iter();
    let points: Vec<_> = points.filter_map(|e| Some((e.step, value(e)?))).collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return tile(name, "–".to_owned(), view.no_evaluations().to_owned());
    };
    let best = points
        .iter()
        .fold(last, |best, p| if p.1 < best.1 { p } else { best });
    let best = match best.0 == last.0 {
        true => "the best".to_owned(),
        false => format!(
            "best {} at step {}",
            Format::Plain.write(best.1),
            grouped(best.0)
        ),
    };
    let detail = format!("{best} · first {}", Format::Plain.write(first.1));
    tile(name, Format::Plain.write(last.1), detail)
}

/// What the agent did, what it earned, what came of it.
fn story(view: &View) -> Vec<String> {
    let mut story = Vec::new();
    let mut ratios: Vec<_> = view
        .domains()
        .filter_map(|d| Some((d.weight_ratio()?, &d.name)))
        .collect();
    ratios.sort_by(|a, b| b.0.total_cmp(&a.0));
    let moved: Maybe = view
        .domains()
        .map(|d| Some((d.weight.get()? - d.base?).abs()))
        .sum::<Maybe>()
        .map(|sum| sum / 2.0);
    if let (Some(moved), [first, .., last]) = (moved, ratios.as_slice()) {
        let when = match view.run.warm_up_end() {
            Some(step) => format!("After the warm-up ({} steps) the", grouped(step)),
            None => "The".to_owned(),
        };
        story.push(if moved < 0.005 {
            format!("{when} weights stayed at the base weights.")
        } else {
            format!(
                "{when} weights differed from the base weights by {} on average: most for {} ({}), least for {} ({}).",
                Format::Percent.write(moved),
                first.1,
                Format::Times.write(first.0),
                last.1,
                Format::Times.write(last.0),
            )
        });
    }
    if let Some([acting, base, uniform]) = super::judgement::mean_expected_rewards(view) {
        let write = |value| Format::Plain.write(value);
        story.push(format!(
            "A draw earned a reward of {} on average, where base weights would have earned {} and uniform ones {}.",
            write(acting), write(base), write(uniform),
        ));
    }
    story.extend(went(view, "Macro held-out perplexity", |e| {
        e.macro_perplexity
    }));
    if view.run.header.target().is_some() {
        let name = "Held-out perplexity under the target";
        story.extend(went(view, name, |e| e.target_perplexity));
    }
    story
}

/// A sentence on the first and the last value of an evaluation figure.
fn went(view: &View, name: &str, value: impl Fn(&EvalRecord) -> Maybe) -> Option<String> {
    let evaluated = view.run.evaluated(value);
    let mut finite = evaluated.iter().flatten();
    let (first, last) = (finite.next()?, finite.next_back()?);
    let (first, last) = (Format::Plain.write(*first), Format::Plain.write(*last));
    Some(format!("{name} went from {first} to {last}."))
}
