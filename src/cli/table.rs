//! Tables that fit a terminal of 100 columns.

use std::io::{self, Write};

const WIDTH: usize = 100;
const GAP: &str = "  ";

/// Writes a header and rows. Every column is as wide as it needs; the last one is cut where the line ends.
pub(super) fn write(out: &mut dyn Write, header: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    let width = |column: usize| {
        let cells = std::iter::once(&header).chain(rows).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    for row in std::iter::once(&header).chain(rows) {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        let line = visible(cells.join(GAP).trim_end());
        writeln!(out, "{}", shorten(&line, WIDTH))?;
    }
    Ok(())
}

/// Text without what moves a terminal's cursor: a pod may name its netdev so, and the name comes back with the netdev
/// (`dev_valid_name` in <https://github.com/torvalds/linux/blob/master/net/core/dev.c> forbids white space, `/` and `:`).
fn visible(text: &str) -> String {
    let is_odd = |character: char| character.is_control() && character != '\n';
    text.chars().map(|character| if is_odd(character) { '\u{fffd}' } else { character }).collect()
}

/// Cuts a text to so many characters.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let cut: String = text.chars().take(width - 1).collect();
    format!("{}…", cut.trim_end())
}

/// Breaks a text into lines at spaces, each line after the first indented.
pub(super) fn wrap(text: &str, indent: usize) -> String {
    let text = visible(text);
    let words = text.trim_start();
    let mut lines = vec![text.split_at(text.len() - words.len()).0.to_owned()];
    let mut fresh = true;
    for word in words.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if fresh || line.chars().count() + 1 + word.chars().count() <= WIDTH {
            if !fresh {
                line.push(' ');
            }
            line.push_str(word);
        } else {
            lines.push(format!("{:indent$}{word}", ""));
        }
        fresh = false;
    }
    lines.join("\n")
}

/// Breaks a text that has no spaces where the line ends.
pub(super) fn fold(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for character in visible(text).chars() {
        if lines.last().is_some_and(|line| line.chars().count() == WIDTH) {
            lines.push(" ".repeat(indent));
        }
        if let Some(line) = lines.last_mut() {
            line.push(character);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_a_hundred_columns() {
        let mut out = Vec::new();
        let rows = vec![vec!["a".to_owned(), "é".repeat(200)], vec!["long name".to_owned(), "b".to_owned()]];
        write(&mut out, &["ONE", "TWO"], &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains('…'));
    }

    #[test]
    fn a_name_that_would_move_the_cursor_is_shown_and_moves_nothing() {
        let name = "\u{1b}[2Jeth0\r\u{9b}7m";
        let mut table = Vec::new();
        write(&mut table, &["NETDEV"], &[vec![name.to_owned()]]).unwrap();
        for shown in [String::from_utf8(table).unwrap(), wrap(name, 2), fold(name, 2)] {
            assert!(shown.contains("[2Jeth0"), "{shown}");
            assert!(!shown.contains(|character: char| character.is_control() && character != '\n'));
        }
    }

    #[test]
    fn a_wrapped_text_keeps_its_words() {
        let text = "word ".repeat(60);
        let wrapped = wrap(text.trim_end(), 4);
        assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH));
        assert_eq!(wrapped.split_whitespace().count(), 60);
        assert_eq!(wrap("   kept  as it is", 4), "   kept  as it is");
    }

    #[test]
    fn a_folded_text_keeps_its_characters() {
        let folded = fold(&"x".repeat(250), 4);
        assert_eq!(folded.lines().count(), 3);
        assert_eq!(folded.matches('x').count(), 250);
    }
}
