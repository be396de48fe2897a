//! The time stamps that the kubelet writes before each line of a log.

use std::collections::VecDeque;

use jiff::Timestamp;

/// Longest time stamp: `2006-01-02T15:04:05.000000000+07:00`.
/// **Source:** `RFC3339NanoFixed` in `k8s.io/cri-client/pkg/logs`; the zone is the node's.
pub(super) const MAX_STAMP: usize = 35;

/// A time stamp, verbatim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    bytes: [u8; MAX_STAMP],
    length: u8,
}

impl Stamp {
    /// Takes `text` when it has the shape of an RFC 3339 time, whatever the number of digits of its fraction.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (seconds, rest) = text.split_at_checked(19)?;
        let shaped =
            seconds.iter().zip(b"dddd-dd-ddTdd:dd:dd").all(|(byte, shape)| if *shape == b'd' { byte.is_ascii_digit() } else { byte == shape });
        let zone = match rest.split_first() {
            Some((b'.', fraction)) => {
                let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
                if digits == 0 { None } else { fraction.get(digits..) }
            }
            _ => Some(rest),
        }?;
        let zoned = match zone {
            b"Z" => true,
            [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()),
            _ => false,
        };
        let mut bytes = [0; MAX_STAMP];
        bytes.get_mut(..text.len()).filter(|_| shaped && zoned)?.copy_from_slice(text);
        Some(Self { bytes, length: u8::try_from(text.len()).ok()? })
    }

    pub(super) fn as_str(&self) -> &str {
        self.bytes.get(..usize::from(self.length)).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// The moment it stands for; `None` for a month 13 and the like.
    pub(super) fn moment(&self) -> Option<Timestamp> {
        self.as_str().parse().ok()
    }
}

/// How many complete lines had each of the last few time stamps.
///
/// stdout and stderr are stamped by two writers and meet in one file, so equal stamps need not be neighbours on a node whose clock
/// is coarse. 16 stamps are far more than two writers can be apart.
#[derive(Default)]
pub(super) struct Recent(VecDeque<(Stamp, u64)>);

const REMEMBERED: usize = 16;

impl Recent {
    pub(super) fn lines(&self, stamp: &Stamp) -> u64 {
        self.0.iter().rev().find(|(known, _)| known == stamp).map_or(0, |(_, lines)| *lines)
    }

    /// Counts one more complete line.
    pub(super) fn add(&mut self, stamp: Stamp) {
        if let Some((_, lines)) = self.0.iter_mut().rev().find(|(known, _)| *known == stamp) {
            *lines += 1;
            return;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((stamp, 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shape_of_a_time_is_a_stamp() {
        for good in [
            "2026-11-30T12:00:00Z",
            "2026-11-30T12:00:00.1Z",
            "2026-11-30T12:00:00.123456789Z",
            "2026-11-30T12:00:00.123456789+02:00",
            "2026-11-30T12:00:00-11:30",
        ] {
            let stamp = Stamp::parse(good.as_bytes()).expect(good);
            assert_eq!(stamp.as_str(), good);
            assert!(stamp.moment().is_some(), "{good}");
        }
        for bad in [
            "",
            "2026-11-30",
            "2026-11-30 12:00:00Z",
            "2026-11-30T12:00:00",
            "2026-11-30T12:00:00.Z",
            "2026-11-30T12:00:00.1234567890+02:00",
            "x026-11-30T12:00:00Z",
            "2026-11-30T12:00:00Zx",
        ] {
            assert!(Stamp::parse(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(Stamp::parse(b"2026-13-30T12:00:00Z").expect("it has the shape").moment().is_none());
    }
}
