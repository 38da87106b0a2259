//! Signs a claim by signature version 4.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use verbs3_lending_protocol::{IdentityClaim, ProofText, SIGNED_TERMINATION};

use crate::client_options::LendingClientOptions;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Makes the claim for a connection's nonce.
pub(crate) fn sign_claim(options: &LendingClientOptions, nonce: &[u8; 32]) -> IdentityClaim {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let stamp = format_stamp(now);
    let scope = format!("{}/{}/{SIGNED_TERMINATION}", &stamp[..8], options.region);
    let socket_path = options.socket.to_string_lossy();
    let access_key = &*options.access_key;
    let text = ProofText { nonce, socket_path: &socket_path, access_key }.canonical_text();
    let digest = hex::encode(Sha256::digest(text.as_bytes()));
    let signed = format!("{ALGORITHM}\n{stamp}\n{scope}\n{digest}");
    let first = format!("AWS4{}", options.secret_key).into_bytes();
    let key = scope.split('/').fold(first, |key, part| compute_hmac(&key, part));
    let signature = hex::encode(compute_hmac(&key, &signed));
    IdentityClaim { access_key: access_key.to_owned(), stamp, scope, signature }
}

fn compute_hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Writes seconds since 1970 as `YYYYMMDDTHHMMSSZ`.
fn format_stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days from 1 March of the year 0, in eras of 400 years ("chrono-Compatible Low-Level Date
    // Algorithms", H. Hinnant).
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_of_their_second() {
        for (seconds, stamp) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_767_225_599, "20251231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(format_stamp(seconds), stamp);
        }
    }
}
