//! Words and values of a recording.

use super::format::{is_plain_text, is_plain_word};
use super::{Errno, Node};

/// The words of an answer, with one space between them.
pub(super) struct Words<'a>(pub(super) &'a str);

impl<'a> Words<'a> {
    pub(super) fn next_word(&mut self) -> Result<Option<String>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (word, rest) = take_word(self.0)?;
        self.0 = after_word(rest)?;
        Ok(Some(word))
    }

    pub(super) fn next_pair(&mut self) -> Result<Option<(&'a str, Option<String>)>, String> {
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
pub(super) fn take_word(text: &str) -> Result<(String, &str), String> {
    if text.starts_with('"') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let Some(Ok(word)) = values.next() else {
            return Err(
                "this JSON string is broken; escape `\"` and `\\` with a `\\`, and close it".to_owned()
            );
        };
        let rest = text.get(values.byte_offset()..).unwrap_or_default();
        return Ok((word, rest));
    }
    let end = text.find(' ').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if !is_plain_word(word) {
        return Err("a word is missing, or it has invisible characters; write it as a JSON string".to_owned());
    }
    Ok((word.to_owned(), rest))
}

pub(super) fn whole_word(text: &str) -> Result<String, String> {
    match take_word(text)? {
        (word, "") => Ok(word),
        _ => Err("write a target with a space in it as a JSON string".to_owned()),
    }
}

pub(super) fn read_text(value: &str) -> Result<String, String> {
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
    if node.number.to_string() == number { Ok(node) } else { Err(SHAPE.to_owned()) }
}
