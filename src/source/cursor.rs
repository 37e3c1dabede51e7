//! Reading foreign bytes: every access checked, every failure with its offset and no content.

use std::ops::Range;

/// Bytes that do not follow the protocol. Carries where and what was expected, never the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} at byte {offset}")]
pub struct Malformed {
    /// Offset in the message.
    pub offset: usize,
    /// What should have stood there.
    pub expected: &'static str,
}

/// A position in a message. Values come out as numbers or as ranges of the message.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn malformed(&self, expected: &'static str) -> Malformed {
        Malformed {
            offset: self.at,
            expected,
        }
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `length` bytes as a range of the message.
    pub(super) fn take(
        &mut self,
        length: usize,
        expected: &'static str,
    ) -> Result<Range<usize>, Malformed> {
        if self.remaining() < length {
            return Err(self.malformed(expected));
        }
        let range = self.at..self.at + length;
        self.at = range.end;
        Ok(range)
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], Malformed> {
        let array = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>())
            .copied()
            .ok_or(self.malformed(expected))?;
        self.at += N;
        Ok(array)
    }

    pub(super) fn u8(&mut self, expected: &'static str) -> Result<u8, Malformed> {
        self.array::<1>(expected).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, expected: &'static str) -> Result<u16, Malformed> {
        self.array(expected).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self, expected: &'static str) -> Result<u32, Malformed> {
        self.array(expected).map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self, expected: &'static str) -> Result<i32, Malformed> {
        self.array(expected).map(i32::from_be_bytes)
    }

    pub(super) fn u64(&mut self, expected: &'static str) -> Result<u64, Malformed> {
        self.array(expected).map(u64::from_be_bytes)
    }

    pub(super) fn i64(&mut self, expected: &'static str) -> Result<i64, Malformed> {
        self.array(expected).map(i64::from_be_bytes)
    }

    /// Text up to a zero byte, which is consumed too.
    pub(super) fn text(&mut self, expected: &'static str) -> Result<&'a str, Malformed> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(self.malformed(expected))?;
        let text = rest
            .get(..length)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .ok_or(self.malformed(expected))?;
        self.at += length + 1;
        Ok(text)
    }

    /// Checks that nothing is left.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            Err(self.malformed("the end of the message"))
        }
    }
}
