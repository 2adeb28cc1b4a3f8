//! Gives the trainer's binaries, tests and benches a run path to libtorch, so that users set no
//! `LD_LIBRARY_PATH`. Leaves finding and linking libtorch to torch-sys.

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if let Ok(libtorch) = std::env::var("LIBTORCH") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
}
