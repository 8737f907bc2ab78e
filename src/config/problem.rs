//! What is wrong with a config, and how it is shown.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Something is not served as written.
    Error,
    /// Everything is served, though perhaps not as meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// What a problem costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The file as a whole is unusable.
    File,
    /// The pool at this position is not served.
    Pool(usize),
    /// An entry of a list matches nothing.
    Entry,
    /// Nothing.
    None,
}

/// A problem of a config.
#[derive(Debug, Clone)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What it costs.
    pub effect: Effect,
    /// Where in the document: `resourceList[0].selectors.vendors[1]`; empty for the file.
    pub json_path: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong, and what to write instead. Never holds a value of `additionalInfo`.
    pub message: String,
    /// The bytes it is about, after a byte order mark.
    pub(super) span: Range<usize>,
    /// Bytes that no excerpt may show.
    pub(super) hidden: Arc<[Range<usize>]>,
}

/// The text without a byte order mark; every offset counts from there.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

impl Problem {
    /// `path:line:column: message`, on one line.
    pub fn sentence(&self, path: &str) -> String {
        format!("{path}:{}:{}: {}", self.line, self.column, self.message)
    }

    /// The problem for a terminal: `path:line:column: error: message`, the JSON path, and an excerpt of `text`, the
    /// text that was checked. Values of `additionalInfo` are not shown.
    pub fn render(&self, path: &str, text: &str) -> String {
        let Self { line, column, severity, message, .. } = self;
        let mut rendered = format!("{path}:{line}:{column}: {severity}: {message}\n");
        let margin = " ".repeat(line.to_string().len());
        if let Some((source, caret)) = self.excerpt(without_mark(text)) {
            rendered.push_str(&format!("{margin} |\n{line} | {source}\n{margin} | {}\n", caret.trim_end()));
        }
        if !self.json_path.is_empty() {
            rendered.push_str(&format!("{margin} = at {}\n", self.json_path));
        }
        rendered
    }

    /// The line and the carets below it.
    fn excerpt(&self, text: &str) -> Option<(String, String)> {
        const WIDTH: usize = 100;
        const BEFORE: usize = 40;
        let start = text.get(..self.span.start)?.rfind('\n').map_or(0, |at| at + 1);
        let line = text.get(start..)?.lines().next()?;
        let hidden = |at: usize| self.hidden.iter().find(|range| range.contains(&at));
        if hidden(start).is_some_and(|range| range.end >= start + line.len()) || line.trim().is_empty() {
            return None;
        }
        let end = self.span.end.max(self.span.start + 1);
        let mut shown: Vec<(char, bool)> = Vec::new();
        for (at, character) in line.char_indices().map(|(at, character)| (start + at, character)) {
            let marked = (self.span.start..end).contains(&at);
            match hidden(at) {
                Some(range) if range.start.max(start) == at => shown.push(('…', marked)),
                Some(_) => {}
                None if character.is_control() => shown.push((' ', marked)),
                None => shown.push((character, marked)),
            }
        }
        if !shown.iter().any(|&(_, marked)| marked) {
            shown.push((' ', true));
        }
        let first = shown.iter().position(|&(_, marked)| marked).unwrap_or(0);
        let skip = if shown.len() > WIDTH { first.saturating_sub(BEFORE) } else { 0 };
        let window = || shown.iter().skip(skip).take(WIDTH);
        let source: String = window().map(|&(character, _)| character).collect();
        let caret = window().map(|&(_, marked)| if marked { '^' } else { ' ' }).collect();
        Some((source.trim_end().to_owned(), caret))
    }
}

/// A problem before its line and column are counted.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) severity: Severity,
    pub(super) effect: Effect,
    pub(super) json_path: String,
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

/// Puts problems in file order and counts lines and columns, in one pass however many there are.
pub(super) fn locate(text: &str, mut found: Vec<Found>, hidden: &Arc<[Range<usize>]>) -> Vec<Problem> {
    found.sort_by_key(|found| found.span.start);
    let (mut at, mut line, mut column) = (0, 1, 1);
    let place = |found: Found| {
        for character in text.get(at..found.span.start).unwrap_or_default().chars() {
            (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        at = at.max(found.span.start);
        Problem {
            severity: found.severity,
            effect: found.effect,
            json_path: printable(&found.json_path),
            line,
            column,
            message: printable(&found.message),
            span: found.span,
            hidden: Arc::clone(hidden),
        }
    };
    found.into_iter().map(place).collect()
}

/// Text from a config may hold escape sequences for a terminal, and may be very long.
fn printable(text: &str) -> String {
    const MOST: usize = 500;
    let mut printable: String = text
        .chars()
        .take(MOST)
        .map(|character| if character.is_control() { '\u{fffd}' } else { character })
        .collect();
    if text.chars().nth(MOST).is_some() {
        printable.push('…');
    }
    printable
}
