//! Reads a recording. Strict, for it is fed from bug reports: every problem is told with its line and what to write.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use super::answers::{read_devlink, read_link, read_route};
use super::format::{FIRST_LINE, NETLINK};
use super::netlink::Names;
use super::words::{Words, read_errno, read_node, read_text, take_word, whole_word};
use super::{Answers, Entry, EntryError, Recording};

/// More problems than this are only counted.
const PROBLEM_LIMIT: usize = 50;

/// One problem of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// Everything that is wrong with a text that should be a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParseRecordingError {
    problems: Vec<Problem>,
    uncounted: usize,
}

impl ParseRecordingError {
    /// The problems in the order of their lines.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Every problem as `PREFIX LINE: MESSAGE`, one a line.
    pub(super) fn with_prefix(&self, prefix: &str) -> String {
        let mut lines: Vec<String> = self
            .problems
            .iter()
            .map(|problem| format!("{prefix}{}: {}", problem.line, problem.message))
            .collect();
        if self.uncounted > 0 {
            lines.push(format!("and {} more", self.uncounted));
        }
        lines.join("\n")
    }

    fn add(&mut self, line: usize, message: String) {
        if self.problems.len() < PROBLEM_LIMIT {
            self.problems.push(Problem { line, message });
        } else {
            self.uncounted += 1;
        }
    }
}

impl fmt::Display for ParseRecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_prefix("line "))
    }
}

impl std::error::Error for ParseRecordingError {}

impl Recording {
    /// Reads a recording.
    ///
    /// Comments stay only where they follow the first line at once; the others are for the reader of the text.
    ///
    /// # Errors
    /// All problems, each with its line and what to write instead.
    pub fn parse(text: &str) -> Result<Self, ParseRecordingError> {
        let mut parser = Parser::default();
        parser.read(text);
        if parser.error.problems.is_empty() {
            Ok(parser.recording)
        } else {
            parser.error.problems.sort_by_key(|problem| problem.line);
            Err(parser.error)
        }
    }
}

impl FromStr for Recording {
    type Err = ParseRecordingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// What the lines that are indented belong to.
#[derive(Default)]
enum Section {
    #[default]
    None,
    /// After a directory line that is wrong: its entries are not complaints of their own.
    Skipped,
    Directory(String),
    Netlink,
}

#[derive(Default)]
struct Parser {
    recording: Recording,
    answers: Answers,
    error: ParseRecordingError,
    section: Section,
    saw_netlink: bool,
    /// Where each entry stands.
    lines: HashMap<String, usize>,
    /// Words that name an interface, to be looked up at the end.
    names: Vec<(usize, String)>,
}

impl Parser {
    fn read(&mut self, text: &str) {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        match lines.next() {
            Some((_, FIRST_LINE)) => {}
            Some((_, line)) if line.starts_with("pcidp-host ") => {
                let message = format!(
                    "this version reads `{FIRST_LINE}` only; record the host again, or take a newer pcidp"
                );
                return self.error.add(1, message);
            }
            _ => {
                let message = format!("the first line of a recorded host must be `{FIRST_LINE}`");
                return self.error.add(1, message);
            }
        }
        let mut in_header = true;
        for (number, line) in lines {
            if let Some(comment) = line.trim_start().strip_prefix('#') {
                if in_header {
                    self.recording.header.push(comment.trim().to_owned());
                }
                continue;
            }
            in_header = false;
            if line.trim().is_empty() {
                continue;
            }
            if let Err(message) = self.line(number, line) {
                self.error.add(number, message);
            }
        }
        self.look_up_names();
        if self.saw_netlink {
            self.recording.answers = Some(std::mem::take(&mut self.answers));
        }
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        if !line.starts_with(char::is_whitespace) {
            return self.open_section(number, line);
        }
        let body = line
            .strip_prefix("  ")
            .filter(|body| !body.starts_with(char::is_whitespace))
            .ok_or("indent an entry by exactly two spaces")?;
        match &self.section {
            Section::Skipped => Ok(()),
            Section::None => Err(format!(
                "this entry is in no directory; write a line such as `/dev/` or `{NETLINK}` above it"
            )),
            Section::Netlink => self.answer(number, body),
            Section::Directory(directory) => {
                let directory = directory.clone();
                self.entry(number, &directory, body)
            }
        }
    }

    fn open_section(&mut self, number: usize, line: &str) -> Result<(), String> {
        self.section = Section::Skipped;
        if line == NETLINK {
            if std::mem::replace(&mut self.saw_netlink, true) {
                return Err(format!("a second `{NETLINK}`; write all answers below the first"));
            }
            self.section = Section::Netlink;
            return Ok(());
        }
        let (path, rest) = take_word(line)?;
        let shape = || {
            format!(
                "write a directory as `/path/` with a slash at both ends, or `{NETLINK}`; entries are indented by two spaces"
            )
        };
        if !rest.is_empty() || !path.starts_with('/') {
            return Err(shape());
        }
        let directory = path.strip_suffix('/').ok_or_else(shape)?.to_owned();
        if !directory.is_empty() && !self.lines.contains_key(&directory) {
            self.insert(number, directory.clone(), Entry::Directory)?;
        } else if let Some(entry) = self.recording.get(&directory)
            && *entry != Entry::Directory
        {
            return Err(EntryError::Below(directory).to_string());
        }
        self.section = Section::Directory(directory);
        Ok(())
    }

    fn entry(&mut self, number: usize, directory: &str, body: &str) -> Result<(), String> {
        const SHAPES: &str =
            "write `name = text`, `name -> target`, `name ! ERRNO`, `name : char 243:0 0600` or `name/`";
        let (mut name, rest) = take_word(body)?;
        let is_quoted = body.starts_with('"');
        let entry = if is_quoted && rest == "/" {
            Entry::Directory
        } else if rest.is_empty() && !is_quoted {
            name = name.strip_suffix('/').ok_or(SHAPES)?.to_owned();
            Entry::Directory
        } else {
            let rest = rest.strip_prefix(' ').ok_or(SHAPES)?;
            // `name = ` may have lost the space at its end.
            let (sign, value) = rest.split_once(' ').unwrap_or((rest, ""));
            match sign {
                "=" => Entry::File(read_text(value)?),
                "->" => Entry::Link(whole_word(value)?),
                "!" => Entry::Unreadable(read_errno(value)?),
                ":" => Entry::Node(read_node(value)?),
                _ => return Err(SHAPES.to_owned()),
            }
        };
        if name.contains('/') {
            return Err(format!("`{name}` is no name; write a line `/directory/` for each directory"));
        }
        self.insert(number, format!("{directory}/{name}"), entry)
    }

    fn insert(&mut self, number: usize, path: String, entry: Entry) -> Result<(), String> {
        self.recording.insert(&path, entry).map_err(|error| match (&error, self.lines.get(&path)) {
            (EntryError::Twice(_), Some(line)) => format!("{error}: the first is on line {line}"),
            _ => error.to_string(),
        })?;
        self.lines.insert(path, number);
        Ok(())
    }

    fn answer(&mut self, number: usize, body: &str) -> Result<(), String> {
        let mut words = Words(body);
        match words.next_word()?.as_deref() {
            Some("link") => {
                let link = read_link(&mut words)?;
                let other = [&link.master, &link.lower];
                self.names.extend(other.into_iter().flatten().map(|name| (number, name.clone())));
                self.answers.links.push(link);
            }
            Some("route") => {
                let route = read_route(&mut words)?;
                self.names.extend(route.interfaces.iter().map(|name| (number, name.clone())));
                self.answers.routes.push(route);
            }
            Some("devlink") => self.answers.devlinks.push(read_devlink(&mut words)?),
            _ => {
                return Err("write `link INDEX NAME …`, `route FAMILY default …` or `devlink BUS/DEVICE …`"
                    .to_owned());
            }
        }
        Ok(())
    }

    fn look_up_names(&mut self) {
        let names = Names::new(&self.recording, &self.answers.links);
        for (line, word) in &self.names {
            if let Err(unknown) = names.index(word) {
                self.error.add(*line, unknown.to_string());
            }
        }
    }
}
