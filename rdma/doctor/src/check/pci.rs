//! Owns the checks of what is between a NIC and memory: its PCIe link, and the IOMMU.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{DeviceDescription, HostDescription, IommuMode, PcieLink, PortState};

/// Compares each NIC's link with the fastest that its card can have, and with its ports.
pub(super) fn check_links(host: &HostDescription) -> Vec<HostFinding> {
    let check = |device: &DeviceDescription| {
        let (link, most) = (device.pci.link?, device.pci.link_max?);
        Some(check_link(device, link, most, card_gbits(host, device)))
    };
    host.devices.iter().filter_map(check).collect()
}

/// Returns the rates of all active ports of a device's card together.
fn card_gbits(host: &HostDescription, device: &DeviceDescription) -> f64 {
    let card = device.pci.card_address();
    let rails = host.all_rails().filter(|rail| {
        rail.device.pci.card_address() == card && rail.port.state == PortState::Active
    });
    rails.filter_map(|rail| rail.port.rate.as_ref()).map(|rate| rate.gbits).sum()
}

/// `ports` is in Gb/s, 0 if unknown.
fn check_link(
    device: &DeviceDescription,
    link: PcieLink,
    most: PcieLink,
    ports: f64,
) -> HostFinding {
    let (narrow, slow) = (link.lanes < most.lanes, link.transfers < most.transfers);
    let beside = if ports > 0.0 { format!("; active ports: {ports} Gb/s") } else { String::new() };
    // A link of the ports' very rate is not enough: PCIe's own packets take some of it.
    let enough = ports > 0.0 && link.gbits() > ports;
    let left = format!("PCIe leaves {:.0} Gb/s", link.gbits());
    if !narrow && !slow {
        let seen = format!("PCIe {link}{beside}");
        let finding = HostFinding::new_ok(HostCheckKind::Pcie, &device.name, seen);
        return match enough || ports == 0.0 {
            true => finding,
            false => finding.with_advice(format!(
                "{left}, less its own packets: the card has no faster link, so its ports can't \
                be filled at once; rails on several cards carry more"
            )),
        };
    }
    let seen = format!("PCIe {link}, the card can do {most}{beside}");
    if enough && !narrow {
        return HostFinding::new_ok(HostCheckKind::Pcie, &device.name, seen)
            .with_advice("the slot is slower than the card, and still faster than its ports");
    }
    let why = if enough {
        format!(
            "{left}, more than the ports carry; but lanes are missing, and a card that sits badly \
            repeats packets and loses more lanes"
        )
    } else if ports > 0.0 {
        format!("{left}, less its own packets: the rest of the ports' rate is lost")
    } else {
        format!("{left}, less its own packets, whatever its ports can carry")
    };
    let mut remedies = Vec::new();
    if narrow {
        remedies.push(format!(
            "reseat card and riser; use a slot with {} lanes; turn off the slot's bifurcation in \
            the BIOS (x16, not x8x8)",
            most.lanes
        ));
    }
    if slow {
        remedies.push(format!(
            "use a slot and riser of {} GT/s; set the slot's link speed in the BIOS to auto",
            most.transfers
        ));
    }
    remedies.push(format!(
        "then look again: lspci -vv -s {} | grep LnkSta; deploy/host/hardware.sh shows PCIe's \
        errors",
        device.pci.address
    ));
    HostFinding::new_warning(HostCheckKind::Pcie, &device.name, seen)
        .with_explanation(why, remedies.join("; "))
}

/// Says what the IOMMU does for each NIC. Translating is slower and no fault: it is advice.
pub(super) fn check_iommu(host: &HostDescription) -> Vec<HostFinding> {
    let check = |device: &DeviceDescription| {
        let told = |seen: String| HostFinding::new_ok(HostCheckKind::Iommu, &device.name, seen);
        match &device.pci.iommu {
            IommuMode::Unknown => None,
            IommuMode::Absent => Some(told("no IOMMU between the NIC and memory".to_owned())),
            IommuMode::Identity => {
                Some(told("the IOMMU passes addresses on (identity)".to_owned()))
            }
            IommuMode::Translating(kind) => Some(
                told(format!("the IOMMU translates every address ({kind})"))
                    .with_advice(
                        "each page of an arena gets an entry, so registration takes longer; the \
                        IOMMU's cache is small, so transfers over much memory may be slower",
                    )
                    .with_remedy(
                        "boot the kernel with iommu=pt (aarch64: iommu.passthrough=1), and compare \
                        verbs3 bench fabric; a NIC is then not kept from any memory",
                    ),
            ),
        }
    };
    host.devices.iter().filter_map(check).collect()
}
