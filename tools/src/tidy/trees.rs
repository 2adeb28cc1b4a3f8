//! Rules for documents: folder trees and links name things that exist.

use std::path::{Path, PathBuf};

use super::{Breach, Source};

pub(super) fn check(root: &Path, source: &Source) -> Vec<Breach> {
    if source
        .path
        .extension()
        .is_none_or(|extension| extension != "md")
    {
        return Vec::new();
    }
    let mut breaches = check_links(root, source);
    let mut lines = source.text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        if line.starts_with("```") {
            let block: Vec<(usize, &str)> = lines
                .by_ref()
                .take_while(|(_, line)| !line.starts_with("```"))
                .collect();
            breaches.extend(check_block(root, source, &block));
        }
    }
    breaches
}

/// Checks a fenced block that is a tree: its first line is a folder's name alone (`hds/`), which stands for the
/// checkout; what is indented below it lies inside.
fn check_block(root: &Path, source: &Source, block: &[(usize, &str)]) -> Vec<Breach> {
    let is_tree = block.first().is_some_and(|(_, line)| {
        line.ends_with('/')
            && !line.contains([' ', '.', '$', '~'])
            && line.matches('/').count() == 1
    });
    let mut breaches = Vec::new();
    // Folders that the next line may lie in, with the column that their names begin at.
    let mut open: Vec<(usize, PathBuf)> = vec![(0, PathBuf::new())];
    for &(number, line) in block.iter().skip(1).filter(|_| is_tree) {
        let plain: String = line
            .chars()
            .map(|letter| {
                if "│├└─".contains(letter) {
                    ' '
                } else {
                    letter
                }
            })
            .collect();
        let column = plain.chars().take_while(|letter| *letter == ' ').count();
        let Some(name) = plain.split_whitespace().next() else {
            continue;
        };
        while open.len() > 1 && open.last().is_some_and(|(at, _)| *at >= column) {
            open.pop();
        }
        let parent = open
            .last()
            .map(|(_, folder)| folder.clone())
            .unwrap_or_default();
        let path = parent.join(name.trim_end_matches('/'));
        let there = if name.ends_with('/') {
            root.join(&path).is_dir()
        } else {
            root.join(&path).exists()
        };
        // A line that goes on with an explanation begins far to the right of any name.
        if !there && column < 20 {
            breaches.push(source.breach(
                number + 1,
                format!("the tree names {}, which is not there", path.display()),
            ));
        }
        if name.ends_with('/') {
            open.push((column, path));
        }
    }
    breaches
}

fn check_links(root: &Path, source: &Source) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for (at, _) in line.match_indices("](") {
            let link = line[at + 2..]
                .split([')', ' ', '#'])
                .next()
                .unwrap_or_default();
            let elsewhere = link.is_empty() || link.contains("://") || link.starts_with("mailto:");
            let folder = source.path.parent().unwrap_or(Path::new(""));
            if !elsewhere && !root.join(folder).join(link).exists() {
                breaches.push(source.breach(
                    number + 1,
                    format!("the link leads to {link}, which is not there"),
                ));
            }
        }
    }
    breaches
}
