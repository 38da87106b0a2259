//! Checks a claim of signature version 4 against an identity: its scope, its time, its signature.
//! Knows no request: who calls it says which text was to be signed.

use std::time::Duration;

use sha2::Sha256;
use sha2::digest::Output;
use subtle::ConstantTimeEq;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

use super::identities::AuthIdentity;
use super::signing_key::ALGORITHM;

/// The SHA-256 of a canonical text.
pub(crate) type Sha256Digest = Output<Sha256>;

/// What a sender claims of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignatureClaim<'a> {
    pub(crate) access_key: &'a str,
    /// `DAY/REGION/SERVICE/aws4_request`
    pub(crate) scope: &'a str,
    /// `YYYYMMDDTHHMMSSZ`
    pub(crate) stamp: &'a str,
    /// 64 hexadecimal digits.
    pub(crate) signature: &'a str,
}

/// The clock that a stamp is checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProofClock {
    pub(crate) now: OffsetDateTime,
    /// Largest difference to the sender's.
    pub(crate) skew_max: Duration,
}

impl SignatureClaim<'_> {
    /// The scope is of the stamp's day, and all of it is text that is signed as it is sent.
    pub(crate) fn has_plain_scope(&self) -> bool {
        self.has_scope_of(&["s3"])
    }

    /// The same for one of other services.
    pub(crate) fn has_scope_of(&self, services: &[&str]) -> bool {
        let plain = |text: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !text.is_empty() && text.bytes().all(known)
        };
        // As s3s has it.
        let plain_region = |text: &str| {
            let known =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            (1..=64).contains(&text.len()) && text.bytes().all(known)
        };
        let mut parts = self.scope.split('/');
        let mut part = || parts.next();
        let (day, region, service, end) = (part(), part(), part(), part());
        plain(self.access_key)
            && self.stamp.get(..8).is_some_and(|of_stamp| day == Some(of_stamp))
            && region.is_some_and(plain_region)
            && service.is_some_and(|service| services.contains(&service))
            && end == Some("aws4_request")
            && parts.next().is_none()
    }

    /// Returns whether the stamp is of now, or, with `expires`, not older than that.
    pub(crate) fn is_in_time(&self, clock: ProofClock, expires: Option<Duration>) -> bool {
        let Some(signed_at) = read_stamp(self.stamp) else { return false };
        let age = clock.now - signed_at;
        match expires {
            Some(expires) if !age.is_negative() => age <= expires,
            Some(_) | None => age.abs() <= clock.skew_max,
        }
    }

    /// Returns whether `identity` has signed the canonical text of this digest.
    pub(crate) fn is_signed_by(&self, identity: &AuthIdentity, canonical: Sha256Digest) -> bool {
        let digest = HexDigits::of_digest(&canonical);
        let text = [ALGORITHM, "\n", self.stamp, "\n", self.scope, "\n", digest.as_str()];
        identity.sign_text(self.scope, &text).is_some_and(|signature| {
            let signature = HexDigits::of_digest(&signature);
            signature.as_str().as_bytes().ct_eq(self.signature.as_bytes()).into()
        })
    }
}

/// A SHA-256 as text: 64 lower-case hexadecimal digits.
struct HexDigits([u8; 64]);

impl HexDigits {
    fn of_digest(digest: &[u8]) -> Self {
        let mut digits = [0; 64];
        hex::encode_to_slice(digest, &mut digits).expect("a SHA-256 has 32 bytes");
        Self(digits)
    }

    fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("hexadecimal digits are text")
    }
}

/// Reads `YYYYMMDDTHHMMSSZ`.
fn read_stamp(stamp: &str) -> Option<OffsetDateTime> {
    let shape = stamp.len() == 16
        && stamp.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    let number = |from: usize, to: usize| stamp.get(from..to)?.parse::<u8>().ok();
    if !shape {
        return None;
    }
    let year = stamp.get(..4)?.parse().ok()?;
    let month = Month::try_from(number(4, 6)?).ok()?;
    let date = Date::from_calendar_date(year, month, number(6, 8)?).ok()?;
    let time = Time::from_hms(number(9, 11)?, number(11, 13)?, number(13, 15)?).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc())
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn stamps_are_moments_of_the_calendar() {
        assert_eq!(read_stamp("20130524T000000Z"), Some(datetime!(2013-05-24 00:00:00 UTC)));
        for wrong in [
            "",
            "20130524T000000",
            "20131324T000000Z",
            "20130532T000000Z",
            "20130524T240000Z",
            "2013052+T000000Z",
        ] {
            assert_eq!(read_stamp(wrong), None, "{wrong}");
        }
    }
}
