//! Gives the shared library the name that programs ask the loader for: it changes with each release
//! that would break them.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libverbs3.so.0");
}
