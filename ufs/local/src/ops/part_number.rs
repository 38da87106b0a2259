//! Owns the numbers that parts of an upload may have.

use s3s::{S3Result, s3_error};

/// The highest part number; the lowest is 1 (S3 user guide, "Amazon S3 multipart upload limits").
pub const PART_NUMBER_MAX: u16 = 10_000;

/// Reads a part number. Fails with InvalidArgument outside 1 to 10,000.
pub fn check_part_number(number: i32) -> S3Result<u16> {
    u16::try_from(number).ok().filter(|n| (1..=PART_NUMBER_MAX).contains(n)).ok_or_else(|| {
        s3_error!(
            InvalidArgument,
            "Part number must be an integer between 1 and {PART_NUMBER_MAX}, inclusive"
        )
    })
}
