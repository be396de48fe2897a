//! `lakeshore serve`: run the control plane.

use super::failure::Failure;
use crate::control_plane::{ServeOptions, serve};

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore serve
  lakeshore serve --data /var/lib/lakeshore --listen 0.0.0.0:7420 \\
      --tls-cert tls.crt --tls-key tls.key
  lakeshore tokens create --data /var/lib/lakeshore --name me --admin    # the first token

Ends on SIGTERM or Ctrl-C, after the requests that it is answering. Everything it knows is in the
data folder.";

/// Serves until it is told to stop.
pub(super) async fn run(options: ServeOptions) -> Result<(), Failure> {
    serve(options).await.map_err(Failure::Serve)
}
