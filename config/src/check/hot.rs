//! Checks of `[coordinator.hot]`.

use super::CheckFindings;
use crate::hot::CoordinatorHotSettings;
use crate::quantity::{ByteSize, TimePeriod};

pub(super) fn check_hot(hot: &CoordinatorHotSettings, findings: &mut CheckFindings) {
    let CoordinatorHotSettings {
        rate,
        workers_max,
        blocks_max,
        reported_max,
        report_every,
        cool_for,
        good_for,
    } = hot;
    let at = |name: &str| format!("coordinator.hot.{name}");
    findings.check_range(at("rate"), *rate, ByteSize::from_kib(1), ByteSize(1 << 40));
    findings.check_range(at("workers_max"), *workers_max, 1, 64);
    findings.check_range(at("blocks_max"), *blocks_max, 1, 1000);
    findings.check_range(at("reported_max"), *reported_max, 1, 256);
    findings.check_range(
        at("report_every"),
        *report_every,
        TimePeriod::from_millis(100),
        TimePeriod::from_seconds(60),
    );
    findings.check_range(
        at("cool_for"),
        *cool_for,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(86_400),
    );
    findings.check_range(
        at("good_for"),
        *good_for,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(86_400),
    );
}
