//! Layer 4: the program `lakeshore`: one file a command.
//!
//! Commands talk to the control plane over REST (`client`); only `serve`, `backup` and `tokens create --data` use its code. What a person
//! asked for goes to stdout, everything else to stderr. Where a setting comes from is decided in `settings`, the names of the
//! environment variables stand in `env`, and each way to fail has its exit code in `exit`. Tests: inline, and `tests/cli/`.

mod args;
mod backoff;
mod backup;
mod client;
mod clusters;
mod completion;
mod config_file;
mod daemons;
mod env;
mod exit;
mod failure;
mod fields;
mod follow;
mod instance;
mod instances;
mod launch;
mod log_pump;
mod logs;
mod modes;
mod namespaces;
mod new_token;
mod output;
mod partial;
mod problem;
mod providers;
mod serve;
mod session;
mod settings;
mod state_pump;
mod stop;
mod terminal;
mod tls;
mod tokens;
mod version;
mod yaml;

pub use args::main;
