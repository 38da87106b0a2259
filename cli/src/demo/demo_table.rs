//! What the demonstration prints.

use std::time::Duration;

use super::DemoReadPass;

/// Prints one line about the dataset. `written`: how many objects were missing before.
pub fn print_dataset(bucket: &str, objects: usize, bytes: u64, written: usize) {
    let origin =
        if written == 0 { "kept from before".to_owned() } else { format!("{written} written now") };
    println!(
        "demonstration: {objects} objects, {} in bucket {bucket} ({origin}); every byte read is \
        checked\n",
        format_size(bytes)
    );
}

/// Prints both readings as a table: time, throughput, requests per second and cache verdicts.
pub fn print_passes(first: &DemoReadPass, second: &DemoReadPass) {
    println!(
        "  {:<12} {:>10} {:>12} {:>12} {:>15}   cache",
        "", "time", "throughput", "requests/s", "from the store"
    );
    for (name, pass) in [("cold", first), ("hot", second)] {
        println!("  {}", pass_row(name, pass));
    }
    println!();
}

fn pass_row(name: &str, pass: &DemoReadPass) -> String {
    let seconds = pass.took.max(Duration::from_micros(1)).as_secs_f64();
    let verdicts: Vec<String> =
        pass.verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    let throughput = format!("{}/s", format_size((pass.bytes as f64 / seconds) as u64));
    format!(
        "{name:<12} {:>8.0}ms {throughput:>12} {:>12.0} {:>15}   {}",
        seconds * 1000.0,
        pass.objects as f64 / seconds,
        format_size(pass.from_store),
        verdicts.join(", ")
    )
}

fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_every_figure() {
        let verdicts = [("hit".to_owned(), 3), ("miss".to_owned(), 1)].into();
        let pass = DemoReadPass {
            objects: 4,
            bytes: 4 << 20,
            took: Duration::from_secs(2),
            from_store: 1 << 20,
            verdicts,
        };
        assert_eq!(
            pass_row("cold", &pass),
            "cold             2000ms    2.0 MiB/s            2         1.0 MiB   3 hit, 1 miss"
        );
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(
            [format_size(0), format_size(1023), format_size(1536), format_size(3 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
        );
    }
}
