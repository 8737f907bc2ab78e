//! Reads a recording. Strict, for it is fed from bug reports: every problem is told with its line and what to write.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use super::format::{FIRST_LINE, NETLINK, PROTOCOLS, ROUTE_KINDS, is_plain_text, is_plain_word};
use super::netlink::Names;
use super::{
    Answers, Entry, EntryError, Errno, Node, RecordedDevlink, RecordedLink, RecordedRoute, Recording,
};
use crate::host::netlink::{Family, TABLE_MAIN};

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
            return Err(format!(
                "`{name}` is no name; write a line `/directory/` for each directory"
            ));
        }
        self.insert(number, format!("{directory}/{name}"), entry)
    }

    fn insert(&mut self, number: usize, path: String, entry: Entry) -> Result<(), String> {
        self.recording
            .insert(&path, entry)
            .map_err(|error| match (&error, self.lines.get(&path)) {
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
                self.names
                    .extend(other.into_iter().flatten().map(|name| (number, name.clone())));
                self.answers.links.push(link);
            }
            Some("route") => {
                let route = read_route(&mut words)?;
                self.names
                    .extend(route.interfaces.iter().map(|name| (number, name.clone())));
                self.answers.routes.push(route);
            }
            Some("devlink") => self.answers.devlinks.push(read_devlink(&mut words)?),
            _ => {
                return Err(
                    "write `link INDEX NAME …`, `route FAMILY default …` or `devlink BUS/DEVICE …`"
                        .to_owned(),
                );
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

fn read_link(words: &mut Words<'_>) -> Result<RecordedLink, String> {
    const SHAPE: &str = "write `link INDEX NAME`, then any of `up`, `carrier`, `no-carrier`, `altname=`, `master=`, `lower=`, `kind=`";
    let index = words.next_word()?.ok_or(SHAPE)?;
    let mut link = RecordedLink {
        index: index.parse().map_err(|_| SHAPE)?,
        name: words.next_word()?.ok_or(SHAPE)?,
        ..RecordedLink::default()
    };
    while let Some((key, value)) = words.next_pair()? {
        match (key, value) {
            ("up", None) => link.up = true,
            ("carrier", None) => link.carrier = Some(true),
            ("no-carrier", None) => link.carrier = Some(false),
            ("altname", Some(name)) => link.alternative_names.push(name),
            ("master", Some(name)) => once(key, &mut link.master, name)?,
            ("lower", Some(name)) => once(key, &mut link.lower, name)?,
            ("kind", Some(kind)) => link.kind = kind,
            _ => return Err(format!("`{key}` does not belong here; {SHAPE}")),
        }
    }
    Ok(link)
}

fn read_route(words: &mut Words<'_>) -> Result<RecordedRoute, String> {
    const SHAPE: &str = "write `route inet default` or `route inet6 default`, then any of `dev=`, `via=`, `table=`, `proto=`, `metric=`, `type=`";
    let family = match words.next_word()?.as_deref() {
        Some("inet") => Family::Inet,
        Some("inet6") => Family::Inet6,
        _ => return Err(SHAPE.to_owned()),
    };
    if words.next_word()?.as_deref() != Some("default") {
        return Err(format!("only default routes are recorded; {SHAPE}"));
    }
    let mut route = RecordedRoute {
        family,
        ..RecordedRoute::default()
    };
    while let Some((key, value)) = words.next_pair()? {
        let value = value.ok_or_else(|| format!("`{key}` does not belong here; {SHAPE}"))?;
        let bad = |form: &str| format!("`{key}={value}` is wrong; write {form}");
        match key {
            "dev" => route.interfaces.push(value),
            "via" => {
                let address = value.parse().map_err(|_| bad("an IP address"))?;
                once(key, &mut route.gateway, address)?;
            }
            "table" if value == "main" => route.table = TABLE_MAIN,
            "table" => route.table = value.parse().map_err(|_| bad("`main` or a number"))?,
            "proto" => {
                let known = PROTOCOLS.iter().find(|(name, _)| *name == value);
                route.protocol = match known {
                    Some((_, number)) => *number,
                    None => value
                        .parse()
                        .map_err(|_| bad("kernel, boot, static, ra, dhcp or a number"))?,
                };
            }
            "metric" => route.metric = value.parse().map_err(|_| bad("a number"))?,
            "type" if ROUTE_KINDS.contains(&value.as_str()) => route.kind = value,
            "type" => return Err(bad("unicast, blackhole, unreachable or prohibit")),
            _ => return Err(format!("`{key}` does not belong here; {SHAPE}")),
        }
    }
    Ok(route)
}

fn read_devlink(words: &mut Words<'_>) -> Result<RecordedDevlink, String> {
    const SHAPE: &str =
        "write `devlink BUS/DEVICE`, then any of `eswitch=legacy`, `eswitch=switchdev`, `info.KEY=VALUE`";
    let device = words
        .next_word()?
        .filter(|word| word.contains('/'))
        .ok_or(SHAPE)?;
    let mut devlink = RecordedDevlink {
        device,
        eswitch: None,
        info: BTreeMap::new(),
    };
    while let Some((key, value)) = words.next_pair()? {
        let info = key.strip_prefix("info.").filter(|key| !key.is_empty());
        match (key, info, value) {
            ("eswitch", _, Some(mode)) if matches!(mode.as_str(), "legacy" | "switchdev") => {
                once(key, &mut devlink.eswitch, mode)?;
            }
            (_, Some(info), Some(value)) => {
                devlink.info.insert(info.to_owned(), value);
            }
            _ => return Err(format!("`{key}` does not belong here; {SHAPE}")),
        }
    }
    Ok(devlink)
}

fn once<T>(key: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("`{key}=` is there twice; write it once")),
    }
}

/// The words of an answer, with one space between them.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn next_word(&mut self) -> Result<Option<String>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (word, rest) = take_word(self.0)?;
        self.0 = after_word(rest)?;
        Ok(Some(word))
    }

    fn next_pair(&mut self) -> Result<Option<(&'a str, Option<String>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let end = self.0.find([' ', '=']).unwrap_or(self.0.len());
        let (key, rest) = self.0.split_at(end);
        let Some(value) = rest.strip_prefix('=') else {
            self.0 = after_word(rest)?;
            return Ok(Some((key, None)));
        };
        let (value, rest) = take_word(value)?;
        self.0 = after_word(rest)?;
        Ok(Some((key, Some(value))))
    }
}

fn after_word(rest: &str) -> Result<&str, String> {
    match rest.strip_prefix(' ') {
        Some(next) if !next.is_empty() && !next.starts_with(char::is_whitespace) => Ok(next),
        None if rest.is_empty() => Ok(""),
        _ => Err("write one space between two words, and none at the end".to_owned()),
    }
}

/// Takes a word or a JSON string off the front.
fn take_word(text: &str) -> Result<(String, &str), String> {
    if text.starts_with('"') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let Some(Ok(word)) = values.next() else {
            return Err(
                "this JSON string is broken; escape `\"` and `\\` with a `\\`, and close it".to_owned(),
            );
        };
        let rest = text.get(values.byte_offset()..).unwrap_or_default();
        return Ok((word, rest));
    }
    let end = text.find(' ').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if !is_plain_word(word) {
        return Err(
            "a word is missing, or it has invisible characters; write it as a JSON string".to_owned(),
        );
    }
    Ok((word.to_owned(), rest))
}

fn whole_word(text: &str) -> Result<String, String> {
    match take_word(text)? {
        (word, "") => Ok(word),
        _ => Err("write a target with a space in it as a JSON string".to_owned()),
    }
}

fn read_text(value: &str) -> Result<String, String> {
    if value.starts_with('"') {
        let (content, rest) = take_word(value)?;
        return match rest {
            "" => Ok(content),
            _ => Err("nothing may follow a JSON string; a text that begins with `\"` must be one".to_owned()),
        };
    }
    if is_plain_text(value) {
        Ok(format!("{value}\n"))
    } else {
        Err("write a content that is empty, or has spaces at its ends or invisible characters, as a JSON string: `\"\\n\"`, `\"\"`".to_owned())
    }
}

/// Linux has 133 of them.
pub(super) fn read_errno(name: &str) -> Result<Errno, String> {
    (1..=133)
        .map(Errno::from_raw)
        .find(|errno| format!("{errno:?}") == name && *errno != Errno::UnknownErrno)
        .ok_or_else(|| {
            format!("`{name}` is no error of the kernel; write a name such as EOPNOTSUPP or EINVAL")
        })
}

pub(super) fn read_node(text: &str) -> Result<Node, String> {
    const SHAPE: &str = "write a device node as `char MAJOR:MINOR 0600` or `block MAJOR:MINOR 0660`";
    let (number, mode) = text.rsplit_once(' ').ok_or(SHAPE)?;
    let parsed = number.parse().map_err(|_| SHAPE)?;
    let mode = Some(mode)
        .filter(|mode| mode.len() == 4 && mode.starts_with('0'))
        .and_then(|mode| u32::from_str_radix(mode, 8).ok())
        .ok_or(SHAPE)?;
    let node = Node { number: parsed, mode };
    if node.number.to_string() == number {
        Ok(node)
    } else {
        Err(SHAPE.to_owned())
    }
}
