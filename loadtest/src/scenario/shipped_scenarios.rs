//! Lists the scenarios that come with the binary, by name. Their text is in `loadtest/scenarios/`.

/// Names and texts, in the order of the list.
pub const SHIPPED: [(&str, &str); 15] = [
    ("hot-4k", include_str!("../../scenarios/hot-4k.toml")),
    ("hot-128k", include_str!("../../scenarios/hot-128k.toml")),
    ("hot-1m", include_str!("../../scenarios/hot-1m.toml")),
    ("hot-16m", include_str!("../../scenarios/hot-16m.toml")),
    ("many-hosts", include_str!("../../scenarios/many-hosts.toml")),
    ("zipf", include_str!("../../scenarios/zipf.toml")),
    ("epoch", include_str!("../../scenarios/epoch.toml")),
    ("shards", include_str!("../../scenarios/shards.toml")),
    ("small-files", include_str!("../../scenarios/small-files.toml")),
    ("random-ranges", include_str!("../../scenarios/random-ranges.toml")),
    ("parquet", include_str!("../../scenarios/parquet.toml")),
    ("checkpoint", include_str!("../../scenarios/checkpoint.toml")),
    ("checkpoint-multipart", include_str!("../../scenarios/checkpoint-multipart.toml")),
    ("cold", include_str!("../../scenarios/cold.toml")),
    ("cold-first-byte", include_str!("../../scenarios/cold-first-byte.toml")),
];

/// Returns the text of a shipped scenario.
pub fn shipped_scenario(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
