//! Layer 3: the control plane, `lakeshore serve`.

mod admin_socket;
mod options;
mod server;

pub use admin_socket::{CreatedToken, NewToken, TokenError, create_token};
pub use options::{InvalidDuration, ServeOptions, parse_duration};
pub use server::{ServeError, serve};
