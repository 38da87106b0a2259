//! The probe of devices; and, in the files, cases that need a device, the fake one or the kernel's.
#![allow(clippy::unwrap_used)]

mod client_memory;
mod fake_devices;
mod gateway_client;
mod gateway_uploads;
mod hostile;
mod sharing;

use super::*;

#[test]
fn every_way_of_having_no_device_is_a_value_with_its_reason() {
    let errno = |code| classify_listing(Err(io::Error::from_raw_os_error(code))).unwrap_err();
    assert_eq!(errno(95), NoRdma::NoLibrary);
    assert_eq!(errno(38), NoRdma::NoKernelVerbs);
    assert!(matches!(errno(13), NoRdma::Other(_)));
    assert_eq!(classify_listing(Ok(vec![])), Err(NoRdma::NoDevice));
    assert!(NoRdma::NoLibrary.to_string().starts_with("no RDMA device: libibverbs"));
}

#[test]
fn devices_are_listed_with_their_fabric() {
    let devices = classify_listing(Ok(vec![("rxe0".into(), 0), ("siw0".into(), 1)])).unwrap();
    let fabrics: Vec<_> = devices.iter().map(|device| device.fabric).collect();
    assert_eq!(fabrics, [RdmaFabricKind::InfiniBand, RdmaFabricKind::Iwarp]);
}

#[test]
fn the_probe_answers_on_any_host() {
    // A device directory that the kernel shows and the probe does not find would be a broken
    // probe.
    let kernel_has =
        std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut dir| dir.next().is_some());
    match probe_devices() {
        Ok(devices) => assert!(kernel_has && !devices.is_empty()),
        // Devices without the library are not usable, and that is the reason given.
        Err(reason) => assert!(!kernel_has || reason == NoRdma::NoLibrary, "{reason}"),
    }
}
