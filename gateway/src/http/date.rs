//! Writes the Date of an answer. hyper would add one, but reuses it until the next second has come.
//! If the clock is put back, hyper's date stays in the future that long, and SDKs that sign by the
//! server's time (aws-sdk-rust, Java) then sign wrongly.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;

thread_local! {
    /// The second written last, and its text. Answers of the same second share it.
    static LAST: RefCell<(u64, HeaderValue)> = RefCell::new(format_date(0));
}

/// Returns the current time in the format of RFC 9110 section 5.6.7.
pub(super) fn current_date() -> HeaderValue {
    date_at(SystemTime::now())
}

fn date_at(moment: SystemTime) -> HeaderValue {
    let second = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    LAST.with_borrow_mut(|last| {
        if last.0 != second {
            *last = format_date(second);
        }
        last.1.clone()
    })
}

fn format_date(second: u64) -> (u64, HeaderValue) {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
    (second, HeaderValue::try_from(text).expect("a date is a header value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_put_back_is_followed_at_once() {
        let at = |second: u64| date_at(UNIX_EPOCH + Duration::from_millis(second * 1000 + 7));
        assert_eq!(at(1_174_981_002), "Tue, 27 Mar 2007 07:36:42 GMT");
        assert_eq!(at(1_174_981_602), "Tue, 27 Mar 2007 07:46:42 GMT");
        assert_eq!(at(1_174_981_002), "Tue, 27 Mar 2007 07:36:42 GMT");
    }
}
