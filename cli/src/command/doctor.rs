//! `verbs3 doctor`: what this host has of RDMA. Its absence is an answer, not a failure.

use std::process::ExitCode;

use verbs3_rdma::verbs::{Fabric, probe};

pub fn run() -> ExitCode {
    match probe() {
        Ok(devices) => {
            for device in devices {
                let fabric = match device.fabric {
                    Fabric::InfiniBand => "InfiniBand or RoCE",
                    Fabric::Iwarp => "iWARP",
                };
                println!("RDMA device {} ({fabric})", device.name);
            }
        }
        Err(reason) => println!("{reason}\ntcp is used between gateways and workers"),
    }
    ExitCode::SUCCESS
}
