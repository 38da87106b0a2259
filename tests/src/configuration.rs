//! Sections of a configuration, as TOML, that most tests want alike. A test adds settings and tables
//! of its own behind them. Who writes the files, and where, is not its affair.

use std::path::Path;

/// A port that the system picks, for who is asked by the address that it wrote down.
pub const ANY_PORT: &str = "127.0.0.1:0";

/// A mount of every bucket of [`store_section`].
pub const MOUNT_OF_ALL: &str = "[[mount]]\nname = \"*\"\nufs = \"store\"\n";

/// The S3 service that mounts call `store`.
pub fn store_section(endpoint: &str, access_key: &str, secret_key: &str) -> String {
    format!(
        "[[ufs]]\nname = \"store\"\nkind = \"s3\"\nendpoint = \"{endpoint}\"\n\
         credentials = {{ kind = \"static\", access_key_id = \"{access_key}\", secret_access_key = \"{secret_key}\" }}\n"
    )
}

/// A coordinator that keeps what must outlive it in the folder `store`.
pub fn coordinator_section(listen: &str, admin: &str, store: &Path) -> String {
    format!(
        "[coordinator]\nlisten = \"{listen}\"\nadmin_listen = \"{admin}\"\nstore = {{ path = \"{}\" }}\n",
        store.display()
    )
}

/// A worker with so much memory.
pub fn worker_section(id: &str, listen: &str, admin: &str, memory: &str) -> String {
    format!(
        "[worker]\nid = \"{id}\"\nlisten = \"{listen}\"\nadmin_listen = \"{admin}\"\n\
         memory = {{ capacity = \"{memory}\" }}\n"
    )
}

/// A gateway that knows the keys of the file `identities`.
pub fn gateway_section(listen: &str, admin: &str, identities: &Path) -> String {
    format!(
        "[gateway]\nlisten = \"{listen}\"\nadmin_listen = \"{admin}\"\nidentities = \"{}\"\n\
         memory = {{ capacity = \"64MiB\" }}\n",
        identities.display()
    )
}

/// Who may do everything, in a file of identities.
pub fn owner_identity(access_key: &str, secret_key: &str) -> String {
    format!(
        "[[identity]]\nname = \"tests\"\naccess_key = \"{access_key}\"\nsecret_key = \"{secret_key}\"\n\
         allow = [{{ mount = \"*\", rights = [\"read\", \"write\", \"list\", \"delete\", \"admin\"] }}]\n"
    )
}
