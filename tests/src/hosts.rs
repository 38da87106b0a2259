//! Hosts on one machine: network namespaces behind one router, whose links go down and whose
//! packets are dropped between pairs of them, either way or both.
//!
//! A test that wants hosts runs again as a process in namespaces of its own, [`alone`], which is
//! the router: nothing of it is seen outside, and all of it is gone when that process has ended.
//! Packets are dropped by routing rules, which every kernel with namespaces has, and silently, as a
//! broken switch does.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

const ALONE: &str = "VERBS3_TESTS_ALONE";
/// Where what could not be proven is noted, if anywhere.
const NOT_PROVEN: &str = "VERBS3_NOT_PROVEN";

/// Whether the caller is to go on: `true` in the process that has namespaces of its own. Elsewhere,
/// starts that for `test`, waits for it, fails if it fails, and says `false`. Where a machine
/// allows no namespaces it says so, and `false`.
pub fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let Some(unshare) = unshare() else {
        let what = format!(
            "{test}: this machine allows no network namespaces (root is needed, or user namespaces)"
        );
        println!("NOT PROVEN: {what}");
        if let Some(file) = std::env::var_os(NOT_PROVEN) {
            let noted = std::fs::read_to_string(&file).unwrap_or_default();
            std::fs::write(file, format!("{noted}{what}\n"))
                .expect("what is not proven can be noted");
        }
        return false;
    };
    let this = std::env::current_exe().expect("this program has a path");
    let status = Command::new(&unshare[0])
        .args(&unshare[1..])
        .arg(this)
        .args(["--exact", test, "--nocapture", "--include-ignored", "--test-threads=1"])
        .env(ALONE, "1")
        .status()
        .expect("unshare was there a moment ago");
    assert!(status.success(), "{test} failed in its own network: {status}");
    false
}

/// As root, or as root of a user namespace.
fn unshare() -> Option<Vec<String>> {
    // With its own processes, too: however it ends, all that it has started ends with it.
    let own = "--net --mount --pid --fork --kill-child --mount-proc";
    let ways = [format!("unshare {own}"), format!("unshare --user --map-root-user {own}")];
    let all = ways.into_iter().map(|way| way.split(' ').map(str::to_owned).collect::<Vec<_>>());
    all.into_iter().find(|way| {
        let probe = "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip netns add probe";
        let tried = Command::new(&way[0]).args(&way[1..]).args(["sh", "-c", probe]).output();
        tried.is_ok_and(|tried| tried.status.success())
    })
}

/// The router and the hosts behind it.
pub struct Network {
    hosts: Vec<String>,
    /// Pairs whose packets are dropped, by place; `None`: everybody.
    cut: Vec<(Option<usize>, Option<usize>)>,
}

impl Network {
    /// To be made once in a process that is [`alone`].
    pub fn new() -> anyhow::Result<Self> {
        ensure!(std::env::var_os(ALONE).is_some(), "the caller is not alone");
        std::fs::create_dir_all("/run/netns")?;
        run("mount -t tmpfs tmpfs /run/netns")?;
        run("ip link set lo up")?;
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
            .context("can't forward between hosts")?;
        Ok(Self { hosts: Vec::new(), cut: Vec::new() })
    }

    pub fn add(&mut self, name: &str) -> anyhow::Result<IpAddr> {
        let number = self.hosts.len() + 1;
        self.hosts.push(name.to_owned());
        run(&format!("ip netns add {name}"))?;
        run(&format!("ip link add v{number} type veth peer name eth0 netns {name}"))?;
        run(&format!("ip addr add 10.77.{number}.1/24 dev v{number}"))?;
        run(&format!("ip link set v{number} up"))?;
        run(&format!("ip -n {name} link set lo up"))?;
        run(&format!("ip -n {name} addr add 10.77.{number}.2/24 dev eth0"))?;
        run(&format!("ip -n {name} link set eth0 up"))?;
        run(&format!("ip -n {name} route add default via 10.77.{number}.1"))?;
        self.address(name)
    }

    pub fn address(&self, name: &str) -> anyhow::Result<IpAddr> {
        let number = u8::try_from(self.place(name)? + 1)?;
        Ok(Ipv4Addr::new(10, 77, number, 2).into())
    }

    /// A command that runs on the host. It keeps its pid.
    pub fn command(&self, name: &str, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{name}")).arg("--").arg(program);
        command
    }

    /// Packets from one host to the other are lost from now on. The other way they are not.
    pub fn cut(&mut self, from: &str, to: &str) -> anyhow::Result<()> {
        let pair = (Some(self.place(from)?), Some(self.place(to)?));
        self.rule("add", pair)?;
        self.cut.push(pair);
        Ok(())
    }

    /// All packets from and to the host are lost, and its link looks well.
    pub fn isolate(&mut self, name: &str) -> anyhow::Result<()> {
        let place = Some(self.place(name)?);
        for pair in [(place, None), (None, place)] {
            self.rule("add", pair)?;
            self.cut.push(pair);
        }
        Ok(())
    }

    /// No packets are dropped any more.
    pub fn mend(&mut self) -> anyhow::Result<()> {
        for pair in std::mem::take(&mut self.cut) {
            self.rule("del", pair)?;
        }
        Ok(())
    }

    /// The host's cable. It sees that it is out.
    pub fn link(&self, name: &str, up: bool) -> anyhow::Result<()> {
        let state = if up { "up" } else { "down" };
        run(&format!("ip link set v{} {state}", self.place(name)? + 1))
    }

    fn place(&self, name: &str) -> anyhow::Result<usize> {
        self.hosts
            .iter()
            .position(|host| host == name)
            .with_context(|| format!("there is no host {name}"))
    }

    fn rule(&self, what: &str, (from, to): (Option<usize>, Option<usize>)) -> anyhow::Result<()> {
        let side = |word: &str, place: Option<usize>| match place {
            Some(place) => format!("{word} 10.77.{}.2", place + 1),
            None => String::new(),
        };
        let number = |place: Option<usize>| place.map_or(0, |place| place + 1);
        let preference = 1000 + number(from) * 100 + number(to);
        let (from, to) = (side("from", from), side("to", to));
        run(&format!("ip rule {what} {from} {to} blackhole pref {preference}"))
    }
}

fn run(command: &str) -> anyhow::Result<()> {
    let mut words = command.split_whitespace();
    let program = words.next().context("an empty command")?;
    let output = Command::new(program).args(words).output().with_context(|| command.to_owned())?;
    if !output.status.success() {
        bail!("{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
