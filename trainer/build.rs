//! Gives the trainer's binaries, tests and benches a run path to libtorch, so that users set no
//! `LD_LIBRARY_PATH`; and compiles what there is in C++: fused operations for CPUs, and the bridge to torch's c10d where Gloo's
//! headers are found.
//!
//! In: `LIBTORCH`; Gloo's headers in the folder `HDS_GLOO_INCLUDE`, or a usual place where that is not set. Out: the configurations
//! `fused` and `c10d` with their objects; without the one the trainer uses torch's operations, without the other it trains in
//! one process and says how to get the rest. Leaves finding and linking libtorch to torch-sys.

use std::env;
use std::path::{Path, PathBuf};

const BRIDGE: &str = "bridge/c10d.cpp";
const FUSED: &str = "bridge/fused.cpp";
const KERNELS: &str = "bridge/kernels.cpp";

/// Kinds of x86-64 processors that the kernels are compiled for besides any: name and flags.
const X86: [(&str, &[&str]); 2] = [
    ("avx2", &["-mavx2", "-mfma"]),
    (
        "avx512",
        &["-mavx512f", "-mfma", "-mprefer-vector-width=512"],
    ),
];

fn main() {
    for variable in ["LIBTORCH", "LIBTORCH_CXX11_ABI", "HDS_GLOO_INCLUDE"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    println!("cargo:rerun-if-changed=bridge");
    println!("cargo:rustc-check-cfg=cfg(c10d)");
    println!("cargo:rustc-check-cfg=cfg(fused)");
    let Ok(libtorch) = env::var("LIBTORCH") else {
        return;
    };
    println!("cargo:rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    let include = Path::new(&libtorch).join("include");
    match fused(&include) {
        Ok(()) => println!("cargo:rustc-cfg=fused"),
        Err(error) => println!(
            "cargo:warning=the fused operations do not compile, torch's are used: {}",
            one_line(&error)
        ),
    }
    match gloo() {
        Some(gloo) => match c10d(&include, &gloo) {
            Ok(()) => println!("cargo:rustc-cfg=c10d"),
            Err(error) => println!(
                "cargo:warning=the bridge to c10d does not compile: hds-train will be for one process: {}",
                one_line(&error)
            ),
        },
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
    // After what needs them.
    println!("cargo:rustc-link-lib=dylib=torch_cpu");
    println!("cargo:rustc-link-lib=dylib=c10");
}

fn one_line(error: &cc::Error) -> String {
    error.to_string().replace('\n', " ")
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

/// A compiler of C++ against torch's headers.
fn against_torch(include: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .include(include)
        .include(include.join("torch/csrc/api/include"))
        // Warnings here would be those of torch's headers.
        .warnings(false)
        .debug(false)
        .opt_level(2);
    if let Ok(abi) = env::var("LIBTORCH_CXX11_ABI") {
        build.define("_GLIBCXX_USE_CXX11_ABI", abi.as_str());
    }
    build
}

/// The kernels, once for each kind of processor, and their operations.
fn fused(include: &Path) -> Result<(), cc::Error> {
    let x86 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let kinds = if x86 { &X86[..] } else { &[] };
    // First, as it needs the others: a linker goes from the first to the last.
    let mut operations = against_torch(include);
    if x86 {
        operations.define("HDS_X86", None);
    }
    operations.file(FUSED).try_compile("hds_fused")?;
    let baseline: (&str, &[&str]) = ("baseline", &[]);
    for (name, flags) in [baseline].iter().chain(kinds) {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .warnings(false)
            .debug(false)
            .opt_level(3)
            .flag("-ffp-contract=fast")
            .flag("-fno-math-errno")
            .define("HDS_KERNELS", format!("hds_kernels_{name}").as_str())
            .file(KERNELS);
        for flag in *flags {
            build.flag(flag);
        }
        build.try_compile(&format!("hds_kernels_{name}"))?;
    }
    Ok(())
}

fn c10d(include: &Path, gloo: &Path) -> Result<(), cc::Error> {
    println!(
        "cargo:rerun-if-changed={}",
        gloo.join("gloo/config.h").display()
    );
    let mut build = against_torch(include);
    build.define("USE_C10D_GLOO", None).file(BRIDGE);
    if !gloo.starts_with("/usr") {
        build.include(gloo);
    }
    build.try_compile("hds_c10d")
}
