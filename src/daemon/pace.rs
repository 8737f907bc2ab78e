//! When to look at the machine, after somebody told that it may have changed.
//!
//! The first hint is followed at once, so that what is gone is told at once; later ones wait until it is quiet for
//! [`QUIET`], and no longer than [`LONGEST`] in a storm. What takes something away is [`Seen::Gone`] and waits only as
//! long as keeps the looks from taking all of the time.

use std::time::Duration;

use tokio::time::Instant;

use crate::host::Seen;

/// How long it has to be quiet.
const QUIET: Duration = Duration::from_millis(250);
/// How long a hint waits in a storm.
const LONGEST: Duration = Duration::from_secs(1);
/// A single change comes as several events: so long they are waited for.
const BURST: Duration = Duration::from_millis(10);
/// Between two urgent looks, at least; and four times the time that a look takes.
const GAP: Duration = Duration::from_millis(50);

/// The pace of looks.
#[derive(Debug)]
pub(super) struct Pace {
    last: Option<Instant>,
    took: Duration,
    /// The first hint that was not followed yet.
    first: Option<Instant>,
    /// When it will have been quiet for long enough.
    quiet: Option<Instant>,
    /// What is not put off by later hints.
    soon: Option<Instant>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { last: None, took: Duration::ZERO, first: None, quiet: None, soon: None }
    }

    /// Somebody tells of a change.
    pub(super) fn hint(&mut self, seen: Seen, now: Instant) {
        let is_calm = self.first.is_none() && self.last.is_none_or(|last| now >= last + QUIET);
        let first = *self.first.get_or_insert(now);
        if is_calm {
            self.soon = Some(now + BURST);
        } else if seen == Seen::Gone {
            let gap = GAP.max(self.took * 4);
            let soon = self.last.map_or(now, |last| last + gap).max(now + BURST);
            self.soon = Some(self.soon.map_or(soon, |earlier| earlier.min(soon)));
        } else {
            self.quiet = Some((now + QUIET).min(first + LONGEST));
        }
    }

    /// When the next look is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.soon.into_iter().chain(self.quiet).min()
    }

    /// A look begins.
    pub(super) fn begins(&mut self, now: Instant) {
        *self = Self { last: Some(now), took: self.took, ..Self::new() };
    }

    /// A look has ended.
    pub(super) fn took(&mut self, took: Duration) {
        self.took = took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_hint_is_followed_at_once_and_a_burst_is_one_look() {
        let start = Instant::now();
        let mut pace = Pace::new();
        for after in 0..5 {
            pace.hint(Seen::Changed, start + after * MS);
        }
        assert_eq!(pace.due(), Some(start + BURST));
    }

    #[test]
    fn later_hints_wait_for_quiet_but_not_for_ever() {
        let start = Instant::now();
        let mut pace = Pace::new();
        pace.begins(start);
        for after in (10..2000).step_by(10) {
            let now = start + after * MS;
            if pace.due().is_some_and(|due| due <= now) {
                assert_eq!(now - start, LONGEST + 10 * MS);
                return;
            }
            pace.hint(Seen::Changed, now);
        }
        panic!("a storm kept it from looking");
    }

    #[test]
    fn what_is_gone_is_looked_for_soon_but_not_without_end() {
        let start = Instant::now();
        let mut pace = Pace::new();
        pace.begins(start);
        pace.took(30 * MS);
        pace.hint(Seen::Changed, start + 20 * MS);
        pace.hint(Seen::Gone, start + 21 * MS);
        assert_eq!(pace.due(), Some(start + 120 * MS));
    }
}
