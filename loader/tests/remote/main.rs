//! Remote indexes over real servers on loopback: nginx for HTTP, s3s-fs for S3. A test whose server is not
//! installed says "skipped: reason".

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod addresses;
#[path = "../loader/builder.rs"]
mod builder;
mod changes;
mod damage;
mod faults;
mod processes;
mod reader;
mod s3;
mod servers;
mod streams;
