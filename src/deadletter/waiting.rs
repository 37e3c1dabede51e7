//! Which letters wait, and which aggregates they hold back.
//!
//! Memory grows with the letters that wait, by some tens of bytes each, and is bounded by
//! [`LETTERS_MAX`].

use std::collections::HashMap;

use super::letter::LetterId;
use crate::lsn::Lsn;

/// Letters of one connector that may hold aggregates back at once.
const LETTERS_MAX: usize = 1_000_000;

/// More letters wait than may be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{LETTERS_MAX} dead letters wait, and to keep the order each has to be remembered; replay or \
     discard them with `walpost dlq`, or set errors.deadletterqueue.order=none"
)]
pub struct Full;

/// What to do with a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is new: write it.
    Write,
    /// An earlier run wrote it, and its event has come again.
    Known,
}

/// The letters that wait, by aggregate.
#[derive(Debug, Default)]
pub struct Waiting {
    /// How often each letter waits: rows that are alike in everything are alike here.
    aggregates: HashMap<Box<[u8]>, HashMap<LetterId, u32>>,
    letters: usize,
    /// Letters of an earlier run whose events will come again. They hold nothing back before that,
    /// since what is read again before them was published, or has yet to be, before them.
    again: HashMap<LetterId, Again>,
    /// Behind this position none of them is left to come.
    again_until: Option<Lsn>,
}

#[derive(Debug, Default)]
struct Again {
    aggregate: Option<Box<[u8]>>,
    waiting: u32,
    /// Replayed or discarded before they came.
    settled: u32,
}

impl Waiting {
    /// A letter found waiting in the topic. `comes_after` says that its event will be read again,
    /// behind that position.
    ///
    /// # Errors
    /// There are too many.
    pub fn recover(
        &mut self,
        letter: LetterId,
        aggregate: Option<&[u8]>,
        comes_after: Option<Lsn>,
    ) -> Result<(), Full> {
        let Some(after) = comes_after else {
            return self.hold(letter, aggregate);
        };
        if self.again.len() >= LETTERS_MAX {
            return Err(Full);
        }
        self.again_until = self.again_until.max(Some(after));
        let again = self.again.entry(letter).or_default();
        again.aggregate = aggregate.map(Box::from);
        again.waiting += 1;
        Ok(())
    }

    fn hold(&mut self, letter: LetterId, aggregate: Option<&[u8]>) -> Result<(), Full> {
        let Some(aggregate) = aggregate else {
            return Ok(());
        };
        if self.letters >= LETTERS_MAX {
            return Err(Full);
        }
        self.letters += 1;
        let letters = match self.aggregates.get_mut(aggregate) {
            Some(letters) => letters,
            None => self.aggregates.entry(aggregate.into()).or_default(),
        };
        *letters.entry(letter).or_default() += 1;
        Ok(())
    }

    /// Whether any event may have to follow a letter.
    pub fn is_idle(&self) -> bool {
        self.aggregates.is_empty() && self.again.is_empty()
    }

    /// Whether events of the aggregate follow a letter.
    pub fn holds(&self, aggregate: &[u8]) -> bool {
        self.aggregates.contains_key(aggregate)
    }

    /// Whether letters of an earlier run are still to be met.
    pub fn expects_any(&self) -> bool {
        !self.again.is_empty()
    }

    /// Whether this letter of an earlier run is still to be met, and waits.
    pub fn expects(&self, letter: LetterId) -> bool {
        self.again
            .get(&letter)
            .is_some_and(|again| again.waiting > 0)
    }

    /// Takes in the letter of an event just read. From here on it holds its aggregate back.
    ///
    /// # Errors
    /// There are too many.
    pub fn admit(&mut self, letter: LetterId, aggregate: Option<&[u8]>) -> Result<Admission, Full> {
        let Some(again) = self.again.get_mut(&letter) else {
            self.hold(letter, aggregate)?;
            return Ok(Admission::Write);
        };
        let settled = again.settled > 0;
        if settled {
            again.settled -= 1;
        } else {
            again.waiting -= 1;
        }
        if again.settled + again.waiting == 0 {
            self.again.remove(&letter);
        }
        if !settled {
            self.hold(letter, aggregate)?;
        }
        Ok(Admission::Known)
    }

    /// A letter was replayed or discarded. Whether its aggregate is free now.
    pub fn settle(&mut self, letter: LetterId, aggregate: Option<&[u8]>) -> bool {
        if let Some(aggregate) = aggregate
            && let Some(letters) = self.aggregates.get_mut(aggregate)
            && let Some(count) = letters.get_mut(&letter)
        {
            *count -= 1;
            self.letters -= 1;
            if *count == 0 {
                letters.remove(&letter);
            }
            if letters.is_empty() {
                self.aggregates.remove(aggregate);
                return true;
            }
        } else if let Some(again) = self.again.get_mut(&letter)
            && again.waiting > 0
        {
            again.waiting -= 1;
            again.settled += 1;
        }
        false
    }

    /// Everything up to the commit at `at` has been read. What was expected and did not come (it
    /// was delivered after all, or the configuration is another) holds its aggregate back from here.
    ///
    /// # Errors
    /// There are too many.
    pub fn passed(&mut self, at: Lsn) -> Result<(), Full> {
        if self.again_until.is_some_and(|until| at > until) {
            self.expect_no_more()?;
        }
        Ok(())
    }

    /// Nothing will come again any more.
    ///
    /// # Errors
    /// There are too many.
    pub fn expect_no_more(&mut self) -> Result<(), Full> {
        self.again_until = None;
        for (letter, again) in std::mem::take(&mut self.again) {
            for _ in 0..again.waiting {
                self.hold(letter, again.aggregate.as_deref())?;
            }
        }
        Ok(())
    }

    /// Aggregates held back.
    pub fn aggregates(&self) -> usize {
        self.aggregates.len()
    }

    /// Letters that hold them back.
    pub fn letters(&self) -> usize {
        self.letters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> LetterId {
        format!("{number:032x}").parse().unwrap()
    }

    fn lsn(raw: u64) -> Lsn {
        Lsn::new(raw).unwrap()
    }

    const A: Option<&[u8]> = Some(b"a");

    #[test]
    fn an_aggregate_is_held_until_its_last_letter_is_settled() {
        let mut waiting = Waiting::default();
        assert!(waiting.is_idle());
        assert_eq!(waiting.admit(id(2), A), Ok(Admission::Write));
        assert_eq!(waiting.admit(id(3), A), Ok(Admission::Write));
        assert_eq!(waiting.admit(id(9), None), Ok(Admission::Write));
        assert!(waiting.holds(b"a") && !waiting.holds(b"b"));
        assert_eq!((waiting.aggregates(), waiting.letters()), (1, 2));
        assert!(!waiting.settle(id(3), A), "2 still waits");
        assert!(!waiting.settle(id(3), A), "named twice, counted once");
        assert!(waiting.holds(b"a"));
        assert!(waiting.settle(id(2), A));
        assert!(waiting.is_idle());
        assert!(!waiting.settle(id(2), A), "released once");
    }

    #[test]
    fn letters_alike_are_counted() {
        let mut waiting = Waiting::default();
        waiting.admit(id(2), A).unwrap();
        waiting.admit(id(2), A).unwrap();
        assert!(!waiting.settle(id(2), A));
        assert!(waiting.settle(id(2), A));
    }

    #[test]
    fn what_was_stored_holds_from_the_start() {
        let mut waiting = Waiting::default();
        waiting.recover(id(2), A, None).unwrap();
        assert!(waiting.holds(b"a"));
        assert!(!waiting.expects_any());
    }

    #[test]
    fn what_comes_again_holds_from_where_it_comes_and_is_not_written_twice() {
        let mut waiting = Waiting::default();
        waiting.recover(id(2), A, Some(lsn(100))).unwrap();
        waiting.recover(id(3), A, Some(lsn(120))).unwrap();
        assert!(!waiting.is_idle());
        assert!(!waiting.holds(b"a"), "event 1 is read again first");
        assert_eq!(waiting.admit(id(2), A), Ok(Admission::Known));
        assert!(waiting.holds(b"a"));
        assert_eq!(waiting.admit(id(3), A), Ok(Admission::Known));
        assert_eq!(waiting.admit(id(4), A), Ok(Admission::Write));
        assert_eq!(waiting.letters(), 3);
        assert!(!waiting.expects_any());
    }

    #[test]
    fn what_is_settled_before_it_comes_again_neither_holds_nor_is_written() {
        let mut waiting = Waiting::default();
        waiting.recover(id(2), A, Some(lsn(100))).unwrap();
        waiting.recover(id(3), A, Some(lsn(100))).unwrap();
        assert!(!waiting.settle(id(2), A));
        assert_eq!(waiting.admit(id(2), A), Ok(Admission::Known));
        assert!(!waiting.holds(b"a"));
        assert!(waiting.expects(id(3)), "its letter waits, so it follows it");
        assert_eq!(waiting.admit(id(3), A), Ok(Admission::Known));
        assert!(waiting.holds(b"a"));
    }

    #[test]
    fn what_was_expected_and_did_not_come_holds_all_the_same() {
        let mut waiting = Waiting::default();
        waiting.recover(id(2), A, Some(lsn(100))).unwrap();
        waiting.passed(lsn(100)).unwrap();
        assert!(!waiting.holds(b"a"));
        waiting.passed(lsn(101)).unwrap();
        assert!(waiting.holds(b"a") && !waiting.expects_any());
    }
}
