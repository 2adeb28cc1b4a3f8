//! The page: parts, style sheet, script and shared data in one file.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::collect::Run;
use super::palette::{dash_class, domain_class, style};
use super::plot::no_data;
use super::sections::{View, agent, cost, judgement, learning, overview, rewards, table, weights};

const STYLE: &str = include_str!("page.css");
pub(crate) const SCRIPT: &str = include_str!("page.js");

/// The whole page as HTML; `config` is the run's configuration file.
pub fn render(run: &Run, config: Option<&str>) -> String {
    let view = View::new(run);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&run.header.policy, run.domains.len()))
            body {
                main {
                    (overview::render(&view))
                    (chips(&view))
                    (learning::render(&view))
                    (weights::render(&view))
                    (judgement::render(&view))
                    (table::render(&view))
                    (rewards::render(&view))
                    (agent::render(&view))
                    (cost::render(&view))
                    (configuration(config))
                }
                div #tip hidden {}
                script type="application/json" id="shared" { (PreEscaped(shared(&view))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// What stands before a page's content; `colours` is how many lines need one of their own.
pub fn head(title: &str, colours: usize) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { "HDS · " (title) }
            style { (PreEscaped(STYLE)) (PreEscaped(style(colours))) }
        }
    }
}

/// One button a domain: the legend of the whole page, and the way to single domains out.
fn chips(view: &View) -> Markup {
    html! {
        nav.chips aria-label="domains" {
            @for (rank, domain) in view.domains().enumerate() {
                button type="button" data-d=(rank) {
                    svg width="20" height="8" aria-hidden="true" {
                        path class={ "ln " (domain_class(rank)) " " (dash_class(rank)) } d="M1 4H19" {}
                    }
                    (domain.name)
                }
            }
            button.all type="button" hidden { "show all" }
        }
    }
}

fn configuration(config: Option<&str>) -> Markup {
    html! {
        section id="configuration" {
            h2 { "Configuration" }
            @match config {
                Some(text) => details { summary { "config.toml" } pre { (text) } },
                None => { (no_data("config.toml", "the run folder has no config.toml")) },
            }
        }
    }
}

/// Numbers that all plots share, as JSON without text of the run.
fn shared(view: &View) -> String {
    let steps: Vec<f64> = view.steps.clone();
    serde_json::json!({
        "steps": steps,
        "evals": view.evaluated_at,
        "lo": view.axis.lo,
        "hi": view.axis.hi,
        "width": view.run.timeline.width(),
    })
    .to_string()
}
