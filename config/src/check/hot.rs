//! Checks of `[coordinator.hot]`.

use super::Findings;
use crate::hot::CoordinatorHot;
use crate::quantity::{ByteSize, Period};

pub(super) fn check(hot: &CoordinatorHot, findings: &mut Findings) {
    let CoordinatorHot {
        rate,
        workers_max,
        blocks_max,
        reported_max,
        report_every,
        cool_for,
        good_for,
    } = hot;
    let at = |name: &str| format!("coordinator.hot.{name}");
    findings.range(at("rate"), *rate, ByteSize::kib(1), ByteSize(1 << 40));
    findings.range(at("workers_max"), *workers_max, 1, 64);
    findings.range(at("blocks_max"), *blocks_max, 1, 1000);
    findings.range(at("reported_max"), *reported_max, 1, 256);
    findings.range(at("report_every"), *report_every, Period::millis(100), Period::seconds(60));
    findings.range(at("cool_for"), *cool_for, Period::millis(0), Period::seconds(86_400));
    findings.range(at("good_for"), *good_for, Period::seconds(1), Period::seconds(86_400));
}
