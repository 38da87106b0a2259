//! What a plan is made from: the data set, the training, the nodes and the store. Each figure is a
//! flag of `verbs3 plan` and a key of its file, under one name; flags win. Computes nothing.

use std::path::Path;
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Deserializer, Serialize};
use verbs3_config::{ByteSize, RootSettings, TimePeriod};

/// Smallest cell of an arena, and slot of a drive (rdma/src/arena/size_classes.rs,
/// cache-worker/src/disk/segment_layout.rs).
pub(super) const CELL_BYTES_MIN: u64 = 4 << 10;

/// Objects of one length, as `1000000x110KiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ObjectSizeClass {
    pub count: u64,
    pub bytes: u64,
}

/// A text is not `COUNTxBYTES`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not COUNTxBYTES; 1000000x110KiB and 64x4GiB are")]
pub struct SizeClassError(String);

impl FromStr for ObjectSizeClass {
    type Err = SizeClassError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || SizeClassError(text.to_owned());
        let (count, bytes) = text.split_once('x').ok_or_else(wrong)?;
        let count = count.trim().parse::<u64>().ok().filter(|count| *count > 0);
        let bytes = bytes.parse::<ByteSize>().ok().filter(|bytes| bytes.0 > 0);
        match (count, bytes) {
            (Some(count), Some(bytes)) => Ok(Self { count, bytes: bytes.0 }),
            _ => Err(wrong()),
        }
    }
}

impl<'de> Deserialize<'de> for ObjectSizeClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The figures as they are given; what is missing has a default, or is a problem.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CapacityFigures {
    /// Objects by length, as COUNTxBYTES: 1000000x110KiB,64x4GiB
    #[arg(long, value_delimiter = ',', value_name = "COUNTxBYTES")]
    sizes: Vec<ObjectSizeClass>,
    /// Bytes of the data set, in place of --sizes; with --objects
    #[arg(long, value_name = "BYTES")]
    data: Option<ByteSize>,
    /// Objects of the data set, all of one length
    #[arg(long, value_name = "NUMBER")]
    objects: Option<u64>,
    /// Passes over the data [default: 3]
    #[arg(long, value_name = "NUMBER")]
    epochs: Option<u32>,
    /// Nodes that read each object in one epoch [default: 1]
    #[arg(long, value_name = "NUMBER")]
    readers_per_object: Option<u32>,
    /// Whether the data is warmed before the training [default: true]
    #[arg(long, value_name = "BOOL")]
    warmed: Option<bool>,
    /// Nodes, each with a gateway and a worker
    #[arg(long, value_name = "NUMBER")]
    nodes: Option<u32>,
    /// Memory of a node that gateway and worker may take together
    #[arg(long, value_name = "BYTES")]
    memory: Option<ByteSize>,
    /// NVMe drives of a node that the cache may fill [default: 0]
    #[arg(long, value_name = "NUMBER")]
    drives: Option<u32>,
    /// Bytes of each drive
    #[arg(long, value_name = "BYTES")]
    drive: Option<ByteSize>,
    /// RDMA ports of a node; 0: none [default: 0]
    #[arg(long, value_name = "NUMBER")]
    nics: Option<u32>,
    /// Gb/s of each, or of the node's Ethernet where there is none
    #[arg(long, value_name = "GBITS")]
    nic_gbits: Option<f64>,
    /// Bytes a second that the object store gives to all nodes together
    #[arg(long, value_name = "BYTES")]
    store_bandwidth: Option<ByteSize>,
    /// Time to the first byte of the store's answers [default: 20ms]
    #[arg(long, value_name = "TIME")]
    store_first_byte: Option<TimePeriod>,
    /// cluster.replicas: workers that may serve each block [default: of the settings]
    #[arg(long, value_name = "NUMBER")]
    replicas: Option<u32>,
    /// Workers that each block is warmed on, `verbs3 preload --replicas` [default: 1]
    #[arg(long, value_name = "NUMBER")]
    copies: Option<u32>,
    /// Objects that the processes of one node read at once [default: 32]
    #[arg(long, value_name = "NUMBER")]
    readers: Option<u32>,
}

/// Complete figures, each in its range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityInput {
    pub sizes: Vec<ObjectSizeClass>,
    pub epochs: u32,
    pub readers_per_object: u32,
    pub warmed: bool,
    pub nodes: u32,
    pub memory_bytes: u64,
    pub drives: u32,
    pub drive_bytes: u64,
    pub nics: u32,
    pub nic_gbits: f64,
    pub store_bytes_per_second: u64,
    pub store_first_byte_seconds: f64,
    pub replicas: u32,
    pub copies: u32,
    pub readers: u32,
}

/// Every problem of the figures, one a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct CapacityInputError(pub Vec<String>);

/// Collects what is wrong with the figures.
#[derive(Default)]
struct FigureCheck {
    problems: Vec<String>,
}

impl FigureCheck {
    /// Takes a figure that has no default.
    fn require<T: Copy + Default>(&mut self, name: &str, figure: Option<T>) -> T {
        if figure.is_none() {
            self.problems.push(format!("{name} is missing"));
        }
        figure.unwrap_or_default()
    }

    /// Holds a figure against its range.
    fn check_range<T>(&mut self, name: &str, figure: T, least: T, most: T)
    where
        T: PartialOrd + std::fmt::Display,
    {
        if !(least <= figure && figure <= most) {
            self.problems.push(format!("{name}: {figure} is not between {least} and {most}"));
        }
    }
}

impl CapacityFigures {
    /// Reads a file of figures.
    pub fn read_file(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Takes from `file` what the flags leave open.
    pub fn or_file(self, file: Self) -> Self {
        let says_data = !self.sizes.is_empty() || self.data.is_some();
        let (sizes, data, objects) = match says_data {
            true => (self.sizes, self.data, self.objects),
            false => (file.sizes, file.data, file.objects),
        };
        Self {
            sizes,
            data,
            objects,
            epochs: self.epochs.or(file.epochs),
            readers_per_object: self.readers_per_object.or(file.readers_per_object),
            warmed: self.warmed.or(file.warmed),
            nodes: self.nodes.or(file.nodes),
            memory: self.memory.or(file.memory),
            drives: self.drives.or(file.drives),
            drive: self.drive.or(file.drive),
            nics: self.nics.or(file.nics),
            nic_gbits: self.nic_gbits.or(file.nic_gbits),
            store_bandwidth: self.store_bandwidth.or(file.store_bandwidth),
            store_first_byte: self.store_first_byte.or(file.store_first_byte),
            replicas: self.replicas.or(file.replicas),
            copies: self.copies.or(file.copies),
            readers: self.readers.or(file.readers),
        }
    }

    /// Completes the figures, and finds every problem of them.
    pub fn complete_input(
        self,
        settings: &RootSettings,
    ) -> Result<CapacityInput, CapacityInputError> {
        let mut check = FigureCheck::default();
        let sizes = match (self.sizes.is_empty(), self.data, self.objects) {
            (true, Some(data), Some(objects)) if objects > 0 && data.0 >= objects => {
                vec![ObjectSizeClass { count: objects, bytes: data.0.div_ceil(objects) }]
            }
            (true, None, None) => {
                check.problems.push("sizes is missing (or data and objects)".to_owned());
                Vec::new()
            }
            (true, _, _) => {
                let why = "data and objects belong together: so many bytes in so many objects";
                check.problems.push(why.to_owned());
                Vec::new()
            }
            (false, None, None) => self.sizes,
            (false, _, _) => {
                let why = "sizes says the data set already; data and objects are too much";
                check.problems.push(why.to_owned());
                Vec::new()
            }
        };
        let input = CapacityInput {
            sizes,
            epochs: self.epochs.unwrap_or(3),
            readers_per_object: self.readers_per_object.unwrap_or(1),
            warmed: self.warmed.unwrap_or(true),
            nodes: check.require("nodes", self.nodes),
            memory_bytes: check.require("memory", self.memory.map(|size| size.0)),
            drives: self.drives.unwrap_or(0),
            drive_bytes: self.drive.map_or(0, |size| size.0),
            nics: self.nics.unwrap_or(0),
            nic_gbits: check.require("nic_gbits", self.nic_gbits),
            store_bytes_per_second: check
                .require("store_bandwidth", self.store_bandwidth.map(|size| size.0)),
            store_first_byte_seconds: self
                .store_first_byte
                .map_or(0.02, |time| time.0.as_secs_f64()),
            replicas: self.replicas.unwrap_or(u32::from(settings.cluster.replicas)),
            copies: self.copies.unwrap_or(1),
            readers: self.readers.unwrap_or(32),
        };
        if check.problems.is_empty() {
            check_input(&input, settings, &mut check);
        }
        if check.problems.is_empty() { Ok(input) } else { Err(CapacityInputError(check.problems)) }
    }
}

fn check_input(input: &CapacityInput, settings: &RootSettings, check: &mut FigureCheck) {
    check.check_range("nodes", input.nodes, 1, settings.coordinator.workers_max);
    check.check_range("epochs", input.epochs, 1, 1000);
    check.check_range("memory", input.memory_bytes, 1 << 30, 1 << 44);
    check.check_range("drives", input.drives, 0, 64);
    if input.drives > 0 {
        check.check_range("drive", input.drive_bytes, 1 << 30, 1 << 50);
    }
    // `verbs.rails` takes so many.
    check.check_range("nics", input.nics, 0, 32);
    check.check_range("nic_gbits", input.nic_gbits, 0.1, 10_000.0);
    check.check_range("store_bandwidth", input.store_bytes_per_second, 1 << 10, 1 << 50);
    check.check_range("replicas", input.replicas, 1, 8);
    check.check_range("copies", input.copies, 1, input.replicas.min(input.nodes));
    check.check_range("readers_per_object", input.readers_per_object, 1, input.nodes);
    check.check_range("readers", input.readers, 1, 65_536);
    // A small object takes a page of memory and a cell of a drive, however little it holds.
    let whole = input.sizes.iter().try_fold(0u64, |sum, class| {
        let held = class.count.checked_mul(class.bytes.max(2 * CELL_BYTES_MIN))?;
        sum.checked_add(held).filter(|sum| *sum < 1 << 60)
    });
    if whole.is_none() {
        check.problems.push("sizes: more than an EiB of cache; no cluster holds that".to_owned());
    }
}
