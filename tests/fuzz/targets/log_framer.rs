#![no_main]

#[path = "../bodies/log_framer.rs"]
mod log_framer;

libfuzzer_sys::fuzz_target!(|data: &[u8]| log_framer::run(data));
