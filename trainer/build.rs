//! Gives the trainer's binaries, tests and benches a run path to libtorch, so that users set no
//! `LD_LIBRARY_PATH`; and compiles the bridge to torch's c10d where Gloo's headers are found.
//!
//! In: `LIBTORCH`; Gloo's headers in the folder `HDS_GLOO_INCLUDE`, or a usual place where that is not set. Out: the bridge and the
//! configuration `c10d`; or neither, and then the trainer trains in one process and says how to get the rest. Leaves
//! finding and linking libtorch to torch-sys.

use std::env;
use std::path::{Path, PathBuf};

const BRIDGE: &str = "bridge/c10d.cpp";

fn main() {
    for variable in ["LIBTORCH", "LIBTORCH_CXX11_ABI", "HDS_GLOO_INCLUDE"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    println!("cargo:rerun-if-changed={BRIDGE}");
    println!("cargo:rustc-check-cfg=cfg(c10d)");
    let Ok(libtorch) = env::var("LIBTORCH") else {
        return;
    };
    println!("cargo:rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    match gloo() {
        Some(gloo) => compile(&Path::new(&libtorch).join("include"), &gloo),
        None => {
            // So that the next build after an `apt-get install` looks again.
            let packages = "/var/lib/dpkg/status";
            if Path::new(packages).exists() {
                println!("cargo:rerun-if-changed={packages}");
            }
            println!(
                "cargo:warning=no headers of Gloo (Debian, Ubuntu: libgloo-dev): hds-train will be for one process"
            );
        }
    }
}

/// The folder that has `gloo/config.h`.
fn gloo() -> Option<PathBuf> {
    let places = match env::var_os("HDS_GLOO_INCLUDE") {
        Some(own) => vec![PathBuf::from(own)],
        None => ["/usr/local/include", "/usr/include"]
            .map(PathBuf::from)
            .into(),
    };
    let mut places = places.into_iter();
    places.find(|place| place.join("gloo/config.h").exists())
}

fn compile(libtorch: &Path, gloo: &Path) {
    println!(
        "cargo:rerun-if-changed={}",
        gloo.join("gloo/config.h").display()
    );
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .define("USE_C10D_GLOO", None)
        .include(libtorch)
        .include(libtorch.join("torch/csrc/api/include"))
        // Warnings here would be those of torch's headers.
        .warnings(false)
        .debug(false)
        .opt_level(2)
        .file(BRIDGE);
    if !gloo.starts_with("/usr") {
        build.include(gloo);
    }
    if let Ok(abi) = env::var("LIBTORCH_CXX11_ABI") {
        build.define("_GLIBCXX_USE_CXX11_ABI", abi.as_str());
    }
    if let Err(error) = build.try_compile("hds_c10d") {
        let reason = error.to_string().replace('\n', " ");
        println!(
            "cargo:warning=the bridge to c10d does not compile: hds-train will be for one process: {reason}"
        );
        return;
    }
    println!("cargo:rustc-cfg=c10d");
    // After the bridge, which needs them.
    println!("cargo:rustc-link-lib=dylib=torch_cpu");
    println!("cargo:rustc-link-lib=dylib=c10");
}
