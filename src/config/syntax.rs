//! From text to a tree with positions: JSON, and beyond it only comments and trailing commas.

use std::ops::Range;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::tokens::{Token, TokenAndRange};
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};

/// A config is a few kilobytes; a larger file is a mistake.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// A tree, and what in its text is more than JSON.
pub(super) struct Parsed<'t> {
    /// `None` where the file is empty.
    pub(super) value: Option<Value<'t>>,
    pub(super) comments: Vec<Range<usize>>,
    pub(super) trailing_commas: Vec<Range<usize>>,
}

/// Why a text is not JSON.
pub(super) struct Refusal {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

/// Parses a text without a byte order mark.
pub(super) fn parse(text: &str) -> Result<Parsed<'_>, Refusal> {
    if text.len() > MOST_BYTES {
        return Err(Refusal {
            span: 0..0,
            message: format!(
                "the file has {} bytes, and a config has at most {MOST_BYTES}; is it the right file?",
                text.len()
            ),
        });
    }
    let collect = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &collect, &options).map_err(|error| Refusal {
        span: error.range().start..error.range().end,
        message: explain(error.kind()),
    })?;
    let tokens = parsed.tokens.unwrap_or_default();
    let (comments, words): (Vec<_>, Vec<_>) = tokens
        .iter()
        .partition(|token| matches!(token.token, Token::CommentLine(_) | Token::CommentBlock(_)));
    let closes = |token: &Token<'_>| matches!(token, Token::CloseBrace | Token::CloseBracket);
    let parsed = Parsed {
        value: parsed.value,
        comments: comments.into_iter().map(range).collect(),
        trailing_commas: words
            .windows(2)
            .filter(|pair| pair[0].token == Token::Comma && closes(&pair[1].token))
            .map(|pair| range(pair[0]))
            .collect(),
    };
    if parsed.value.is_some() {
        strictly_json(text, &parsed)?;
    }
    Ok(parsed)
}

fn range(token: &TokenAndRange<'_>) -> Range<usize> {
    token.start()..token.end()
}

/// `jsonc-parser` also takes raw control characters in strings and any Unicode white space between tokens; Go does
/// not. What remains without comments and trailing commas must be JSON to `serde_json` too.
fn strictly_json(text: &str, parsed: &Parsed<'_>) -> Result<(), Refusal> {
    let mut bytes = text.as_bytes().to_vec();
    for range in parsed.comments.iter().chain(&parsed.trailing_commas) {
        for byte in bytes.iter_mut().take(range.end).skip(range.start) {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) else {
        return Ok(());
    };
    let line_start: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let mut start = (line_start + error.column().saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    // The column is that of the character or of the one before it, as the error was seen by looking ahead or not.
    let foreign = |&(_, c): &(usize, char)| c.is_control() || !c.is_ascii() && c.is_whitespace();
    let culprit = text.get(start..).unwrap_or_default().char_indices().take(2).find(foreign);
    let (offset, character) = culprit.unwrap_or((0, ' '));
    let name = match character {
        ' ' => "this".to_owned(),
        character => format!("the character U+{:04X}", u32::from(character)),
    };
    start += offset;
    Err(Refusal {
        span: start..start + character.len_utf8(),
        message: format!(
            "{name} is not allowed in JSON here; between values write spaces, tabs and line ends only, and in a string \
             write control characters as \\n, \\t or \\u00XX"
        ),
    })
}

/// The parser's own words never quote the text, so they cannot show a secret.
fn explain(kind: &ParseErrorKind) -> String {
    let known = match kind {
        ParseErrorKind::ExpectedComma => "a comma is missing here",
        ParseErrorKind::SingleQuotedStringsNotAllowed => "single quotes are not JSON; write double quotes",
        ParseErrorKind::ExpectedStringObjectProperty => {
            "a key without quotes is not JSON; write it in double quotes"
        }
        ParseErrorKind::ExpectedColonAfterObjectKey => "after a key comes a colon; write \"key\": value",
        ParseErrorKind::HexadecimalNumbersNotAllowed => {
            "a hex number is not JSON; write it as a string in double quotes"
        }
        ParseErrorKind::UnterminatedObject => "the object that begins here has no end; write `}` at its end",
        ParseErrorKind::UnterminatedArray => "the list that begins here has no end; write `]` at its end",
        ParseErrorKind::NestingDepthExceeded => {
            "values are nested too deeply here; no config needs more than ten levels"
        }
        ParseErrorKind::MultipleRootJsonValues => {
            "text follows the end of the config; write one JSON object only"
        }
        ParseErrorKind::UnexpectedTokenInObject => "write a key in double quotes here, or `}`",
        ParseErrorKind::UnexpectedWord => "a bare word is not JSON; write text in double quotes",
        other => return format!("this is not JSON: {}", other.to_string().to_lowercase()),
    };
    known.to_owned()
}
