//! Text of a page made by mdBook.
//!
//! In: HTML. Out: the text of its `<main>`, blocks separated by blank lines, code kept as it is. It is no HTML
//! parser: it knows what mdBook writes, and unknown tags vanish.

/// The text in the `<main>` element of `page`; empty where it has none.
pub(super) fn main_text(page: &str) -> String {
    let Some(start) = page.find("<main>") else {
        return String::new();
    };
    let body = &page[start + "<main>".len()..];
    let body = &body[..body.find("</main>").unwrap_or(body.len())];
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    let mut in_code = 0_u32;
    while let Some(at) = rest.find('<') {
        push_text(&mut text, &rest[..at], in_code > 0);
        let tag_end = rest[at..].find('>').map_or(rest.len(), |end| at + end + 1);
        let tag = rest[at..tag_end].trim_matches(['<', '>']);
        rest = &rest[tag_end..];
        if let Some(comment) = tag.strip_prefix("!--") {
            if !comment.ends_with("--") {
                rest = rest.find("-->").map_or("", |end| &rest[end + 3..]);
            }
            continue;
        }
        let closing = tag.starts_with('/');
        let name: String = tag
            .trim_start_matches('/')
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        match name.as_str() {
            "script" | "style" | "svg" | "button" if !closing => {
                let end = format!("</{name}>");
                rest = rest.find(&end).map_or("", |at| &rest[at + end.len()..]);
            }
            "pre" if closing => {
                in_code = in_code.saturating_sub(1);
                end_block(&mut text);
            }
            "pre" => {
                end_block(&mut text);
                in_code += 1;
            }
            "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "ul" | "ol" | "table" | "blockquote"
            | "div" | "dl" => {
                end_block(&mut text);
            }
            "li" | "tr" | "dt" | "dd" | "br" if !text.is_empty() && !text.ends_with('\n') => {
                text.push('\n')
            }
            "td" | "th" if closing => text.push(' '),
            _ => {}
        }
        if name == "li" && !closing {
            text.push_str("- ");
        }
    }
    push_text(&mut text, rest, in_code > 0);
    let mut text = text.trim().to_owned();
    text.push('\n');
    text
}

fn end_block(text: &mut String) {
    let kept = text.trim_end_matches(' ').len();
    text.truncate(kept);
    while !text.is_empty() && !text.ends_with("\n\n") {
        text.push('\n');
    }
}

fn push_text(text: &mut String, part: &str, in_code: bool) {
    if !in_code && part.trim().is_empty() {
        if part.contains(' ') && !text.ends_with(char::is_whitespace) && !text.is_empty() {
            text.push(' ');
        }
        return;
    }
    let mut rest = part;
    while let Some(at) = rest.find('&') {
        text.push_str(&rest[..at]);
        let end = rest[at..]
            .char_indices()
            .take(12)
            .find(|&(_, letter)| letter == ';')
            .map(|(end, _)| at + end);
        let Some(end) = end else {
            text.push('&');
            rest = &rest[at + 1..];
            continue;
        };
        match decode(&rest[at + 1..end]) {
            Some(letter) => text.push(letter),
            None => text.push_str(&rest[at..=end]),
        }
        rest = &rest[end + 1..];
    }
    text.push_str(rest);
}

fn decode(entity: &str) -> Option<char> {
    Some(match entity {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        _ => {
            let number = entity.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_vanish_and_blocks_are_separated() {
        let page = "<body>menu<main>\n  <h2 id=\"a\"><a href=\"#a\">Title</a></h2>\n<p>One <em>two</em>\nthree &lt;4&gt; &#39;x&#x27; &amp; &bogus;.</p>\
                    <pre><code>fn main() {\n    1 &lt; 2;\n}</code></pre><ul><li>a</li><li>b</li></ul><script>no()</script></main>footer</body>";
        let want = "Title\n\nOne two\nthree <4> 'x' & &bogus;.\n\nfn main() {\n    1 < 2;\n}\n\n- a\n- b\n";
        assert_eq!(main_text(page), want);
    }

    #[test]
    fn broken_pages_do_no_harm() {
        for page in [
            "",
            "<main>",
            "<main><p",
            "<main><!-- never ends",
            "<main>&",
            "<main>&#x110000;&é;",
            "<main><script>",
        ] {
            let _ = main_text(page);
        }
    }
}
