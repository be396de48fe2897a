//! Layer 3: the control plane, `lakeshore serve`. It takes requests from people and gives work to daemons, without ever
//! holding a cluster's credentials.
//!
//! ```text
//! callers ─► listen ─► http ─► launch, placement (pure)
//!                        │
//!                        ▼
//!                      store ◄── hub ◄══ websockets of daemons
//!                                 └─► logs (segment files)
//! ```
//!
//! Whatever decides is a row in `store` and is there before anybody is told; `http` answers from it and `hub` writes to it.
//! Tests: inline for what is pure, `store/conformance` for any store, `tests/control_plane/` over real sockets and files.

mod admin_socket;
mod audit;
mod backup;
mod changes;
pub(crate) mod clock;
mod disk;
mod http;
pub(crate) mod hub;
mod identity;
mod launch;
mod listen;
pub(crate) mod logs;
mod options;
pub(crate) mod placement;
mod server;
pub(crate) mod store;
mod tls;
pub(crate) mod tokens;

pub use admin_socket::{CreatedToken, NewToken, TokenError, create_token};
pub use backup::{BackedUp, BackupError, Progress, Step, back_up};
pub use options::{InvalidDuration, ServeOptions, parse_duration};
pub use server::{ServeError, Server, serve};
pub use store::StoreError;
pub use tls::TlsError;
