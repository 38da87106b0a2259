//! Cases of devices that come late, go, and return within one process, on real kernel verbs. Each
//! test runs in its own process: while a device is gone, no other test can run on it.

use std::io;
use std::net::IpAddr;
use std::process::Command;

use verbs3_rdma::peer::TransportWays;
use verbs3_rdma::rails::{self, ChosenRail, RailPort, RailRules};
use verbs3_rdma::transport::{PeerAddress, PeerTransport, TransportError, WayTerms};
use verbs3_rdma::verbs::{
    RailIdentity, RailPlace, VerbsOptions, VerbsServer, VerbsServerOptions, VerbsTransport,
};
use verbs3_settings::TimePeriod;

use crate::transport_fixture::{
    arena, collect, echo, eventually, listen_address, verbs_options, within_deadline,
};

/// A soft device and what it is made of.
struct Device {
    name: String,
    kind: String,
    netdev: String,
}

impl Device {
    /// Returns the device that `VERBS3_TEST_DEVICE` names. Does not open it: a soft device that a
    /// process has opened goes only with that process.
    fn under_test() -> Self {
        let address = listen_address().ip();
        let interfaces = rails::list_interfaces().unwrap();
        let netdev =
            interfaces.into_iter().find(|interface| interface.address == address).unwrap().name;
        let name = std::env::var("VERBS3_TEST_DEVICE").expect("an RDMA device");
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        Self { name, kind, netdev }
    }

    fn link(words: &[&str]) {
        let output =
            Command::new("rdma").arg("link").args(words).output().expect("iproute2's rdma");
        assert!(output.status.success(), "rdma link {words:?}: {output:?}");
    }

    fn add(&self) {
        Self::link(&["add", &self.name, "type", &self.kind, "netdev", &self.netdev]);
    }

    /// Returns the place of the device, like a process that names it in its configuration.
    fn place(&self) -> RailPlace {
        let (rules, names) = (RailRules::default(), [ChosenRail::with_name(&self.name)]);
        let port_of = |address: IpAddr| {
            let RailIdentity { device, port, .. } =
                RailIdentity::find_by_address(address).ok().flatten()?;
            Some(RailPort { device, port })
        };
        RailPlace::new(0, self.name.as_str(), move || {
            rules
                .resolve_rails(&names, &rails::list_interfaces()?, port_of)
                .swap_remove(0)
                .map_err(io::Error::other)
        })
    }
}

fn options() -> VerbsOptions {
    let mut options = verbs_options();
    options.settings.reopen_max = TimePeriod::from_seconds(2);
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn device_that_comes_late_is_used_by_both_sides() {
    within_deadline(async {
        let device = Device::under_test();
        Device::link(&["delete", &device.name]);
        let server_options = VerbsServerOptions::new(options());
        let (server, attempt) =
            VerbsServer::start(device.place(), 0, server_options, arena(4), echo());
        assert!(
            attempt.first_error().await.unwrap().to_string().contains(&device.name),
            "the error names what is missing"
        );
        assert_eq!(server.local_addr(), None);
        let memory = arena(4);
        let (transport, attempt) = VerbsTransport::start(device.place(), options(), memory.clone());
        assert!(attempt.first_error().await.is_some() && !transport.is_up());
        let refused =
            transport.connect_to(listen_address(), &WayTerms::default()).await.err().unwrap();
        assert!(matches!(refused, TransportError::Unreachable { .. }), "{refused}");

        device.add();
        eventually("both sides have found it", || {
            server.local_addr().is_some() && transport.is_up()
        })
        .await;
        let ways = TransportWays::over_rails(vec![server.local_addr()]);
        let peer = PeerAddress { ways, ..PeerAddress::from(listen_address()) };
        let connection = transport.connect(&peer).await.unwrap();
        let mut call = connection.start_call("hello".into(), None);
        assert_eq!(collect(&mut call).await.unwrap().messages, ["hello"]);
    })
    .await;
}
