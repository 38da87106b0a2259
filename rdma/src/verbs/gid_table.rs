//! Owns the choice of this host's GID for a client: the table that the kernel shows of a port, and
//! which of its rows goes with the client's own GID. Asks no device.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use crate::client_memory::PortGid;

/// Rows that are looked at. Ports have up to 256, most of them empty.
const ROWS_MAX: u16 = 256;

/// One row of a port's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GidRow {
    pub(super) index: u8,
    pub(super) gid: PortGid,
    /// RoCE v2, which goes through routers; else v1.
    pub(super) is_routed: bool,
}

/// Reads the rows of a RoCE port. `folder`: where the kernel describes the device.
pub(super) fn read_gid_rows(folder: &Path, port: u8) -> Vec<GidRow> {
    let port = folder.join("ports").join(port.to_string());
    let read_row = |index: u16| {
        let text = |place: &str| fs::read_to_string(port.join(place).join(index.to_string())).ok();
        let gid: Ipv6Addr = text("gids")?.trim().parse().ok()?;
        // The kernel has a type for used rows alone.
        let is_routed = match text("gid_attrs/types")?.trim() {
            "RoCE v2" => true,
            "IB/RoCE v1" => false,
            _ => return None,
        };
        let index = u8::try_from(index).ok()?;
        (!gid.is_unspecified()).then_some(GidRow { index, gid: PortGid(gid.octets()), is_routed })
    };
    (0..ROWS_MAX).filter_map(read_row).collect()
}

/// Returns the row to write to a client from: both sides have to speak one version of RoCE by one
/// family of addresses, and only the client's GID tells which. `own`: the rail's address.
pub(super) fn choose_gid_row(rows: &[GidRow], own: PortGid, client: PortGid) -> Option<GidRow> {
    let of_own = || rows.iter().filter(|row| row.gid == own).max_by_key(|row| row.is_routed);
    // The first row is the port's default. Programs that take it have RoCE v1, where there is that.
    let of_link = || rows.iter().find(|row| row.gid.is_link_local());
    let is_of_own_kind = client.ip_address().is_ipv4() == own.ip_address().is_ipv4();
    match client.is_link_local() {
        true => of_link().copied(),
        false if is_of_own_kind => of_own().copied(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::IpAddr;

    fn gid(text: &str) -> PortGid {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn row(index: u8, text: &str, is_routed: bool) -> GidRow {
        GidRow { index, gid: gid(text), is_routed }
    }

    #[test]
    fn own_gid_is_of_the_kind_that_the_client_has() {
        let rows = [
            row(0, "fe80::1", false),
            row(1, "fe80::1", true),
            row(2, "10.0.0.9", true),
            row(3, "10.0.0.7", false),
            row(4, "10.0.0.7", true),
        ];
        let choose = |client| choose_gid_row(&rows, gid("10.0.0.7"), gid(client));
        assert_eq!(choose("10.0.0.8").unwrap().index, 4, "of the rail's address, RoCE v2");
        assert_eq!(choose("192.168.1.1").unwrap().index, 4);
        assert_eq!(choose("fe80::2").unwrap().index, 0, "the port's default");
        assert_eq!(choose("fd00::2"), None);
        assert_eq!(choose_gid_row(&rows, gid("10.0.0.6"), gid("10.0.0.8")), None);
    }

    #[test]
    fn table_has_the_rows_that_the_kernel_describes() {
        let folder = tempfile::tempdir().unwrap();
        let port = folder.path().join("ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        let write = |place: &str, index: u8, text: &str| {
            fs::write(port.join(place).join(index.to_string()), text).unwrap();
        };
        for (index, gid, kind) in [
            (0, "fe80:0000:0000:0000:5054:00ff:fe12:3456\n", Some("IB/RoCE v1\n")),
            (1, "0000:0000:0000:0000:0000:ffff:0a4d:0002\n", Some("RoCE v2\n")),
            (2, "0000:0000:0000:0000:0000:0000:0000:0000\n", Some("RoCE v2\n")),
            (3, "0000:0000:0000:0000:0000:ffff:0a4d:0003\n", None),
            (4, "0000:0000:0000:0000:0000:ffff:0a4d:0004\n", Some("IB\n")),
        ] {
            write("gids", index, gid);
            if let Some(kind) = kind {
                write("gid_attrs/types", index, kind);
            }
        }
        let rows = read_gid_rows(folder.path(), 1);
        let expected = [row(0, "fe80::5054:ff:fe12:3456", false), row(1, "10.77.0.2", true)];
        assert_eq!(rows, expected);
        assert!(read_gid_rows(folder.path(), 2).is_empty());
    }
}
