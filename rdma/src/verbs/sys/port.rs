//! Owns what a device reports of its ports beyond sysfs.

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;

use rdma_mummy_sys as ffi;

use super::states::mtu_bytes;
use super::{check_result, last_error};

/// `IBV_LINK_LAYER_INFINIBAND` of <infiniband/verbs.h>. The bindings leave this anonymous enum out.
const LINK_LAYER_INFINIBAND: u8 = 1;

/// Attributes of a port, as its device reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) struct PortAttributes {
    pub(in crate::verbs) infiniband: bool,
    /// In bytes; 0 where the device reports none.
    pub(in crate::verbs) active_mtu: u16,
    pub(in crate::verbs) is_down: bool,
}

impl PortAttributes {
    /// # Safety
    /// `context` is open.
    pub(super) unsafe fn query_port(
        context: NonNull<ffi::ibv_context>,
        number: u8,
    ) -> io::Result<Self> {
        // SAFETY: plain data, for which zeroes are valid.
        let mut port: ffi::ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the caller vouches for the context; the place is valid.
        let asked = unsafe { ffi::ibv_query_port(context.as_ptr(), number, &raw mut port) };
        check_result(asked, "can't ask the port")?;
        Ok(Self {
            infiniband: port.link_layer == LINK_LAYER_INFINIBAND,
            active_mtu: mtu_bytes(port.active_mtu),
            is_down: port.state == ffi::ibv_port_state::IBV_PORT_DOWN,
        })
    }

    /// Opens the device named `device` and queries its port `number`.
    pub(in crate::verbs) fn open_and_query(device: &str, number: u8) -> io::Result<Self> {
        let mut count = 0;
        // SAFETY: `count` is a valid place for an int.
        let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
        if list.is_null() {
            return Err(last_error("can't list the RDMA devices"));
        }
        let mut found = None;
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` entries and lives until it is freed below.
            let entry = unsafe { *list.add(at) };
            let name = if entry.is_null() {
                std::ptr::null()
            } else {
                // SAFETY: an entry of the live list.
                unsafe { ffi::ibv_get_device_name(entry) }
            };
            // SAFETY: not null: a string that ends with a zero and lives as long as the device.
            if !name.is_null() && unsafe { CStr::from_ptr(name) }.to_bytes() == device.as_bytes() {
                found = Some(entry);
            }
        }
        // SAFETY: an entry of the list, which is freed only below.
        let context = found.and_then(|entry| NonNull::new(unsafe { ffi::ibv_open_device(entry) }));
        let opened = context.ok_or_else(|| last_error("can't open the RDMA device"));
        // SAFETY: the list came from `ibv_get_device_list`; an open context keeps its device by
        // itself.
        unsafe { ffi::ibv_free_device_list(list) };
        let context = opened?;
        // SAFETY: just opened, and closed below.
        let port = unsafe { Self::query_port(context, number) };
        // SAFETY: opened above, and closed once.
        unsafe { ffi::ibv_close_device(context.as_ptr()) };
        port
    }
}
