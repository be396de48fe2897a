//! `lakeshore tokens`: what callers show to the control plane.

use std::path::PathBuf;

use clap::Subcommand;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::failure::Failure;
use super::new_token::Words;
use super::output::{self, Format};
use super::session::Session;
use super::settings::{ConnectionArgs, parse_id};
use super::terminal::note;
use crate::control_plane::{NewToken, TokenError, create_token};
use crate::error::Chain;

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore tokens create --data ./lakeshore-data --name me --admin    # the first, on the server
  lakeshore tokens create --name ci --namespace team-a --namespace team-b
  lakeshore tokens revoke 5017cde40dc8b46d    # an id, as `lakeshore tokens list` shows it

A token is shown once. --data needs access to the server's data folder, not a token.";

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a token, and print it
    #[command(after_help = EXAMPLE)]
    Create(CreateArgs),
    /// List the tokens, without what is secret of them
    List,
    /// Revoke a token: it is refused from now on
    Revoke(RevokeArgs),
}

/// A token to create. The namespaces that it sees are those of the global `--namespace`, which may be repeated here.
#[derive(Debug, clap::Args)]
pub(super) struct CreateArgs {
    /// Name of the token; shown as who asked
    #[arg(long, value_name = "NAME")]
    name: String,
    /// May do everything, in every namespace; otherwise name those that it sees by --namespace, repeatedly
    #[arg(long)]
    admin: bool,
    /// Data folder of the server on this machine, running or not; no token is needed then
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// A token to revoke.
#[derive(Debug, clap::Args)]
pub(super) struct RevokeArgs {
    /// Id of the token, as `tokens list` shows it
    #[arg(value_name = "ID", value_parser = parse_id)]
    id: String,
}

/// Carries out the command. Namespaces are what a new token sees here, not where the command works.
pub(super) async fn run(command: Command, connection: &ConnectionArgs, format: Format) -> Result<(), Failure> {
    let session = || Session::open(&ConnectionArgs { namespaces: Vec::new(), ..connection.clone() }, format);
    match command {
        Command::Create(CreateArgs { data: Some(data), name, admin }) => create_in_data(data, request(name, admin, connection)?, format).await,
        Command::Create(args) => create(request(args.name, args.admin, connection)?, &session()?).await,
        Command::List => {
            let rows = session()?.client.get(&["v1", "tokens"], &[]).await?;
            let columns = [("ID", "id"), ("NAME", "name"), ("ADMIN", "admin"), ("NAMESPACES", "namespaces"), ("CREATED", "createdAt")];
            output::list(format, &rows, &columns, "no tokens")
        }
        Command::Revoke(args) => {
            session()?.client.delete(&["v1", "tokens", &args.id]).await?;
            output::done(format, &format!("revoked token {}", args.id), &json!({"id": args.id}))
        }
    }
}

fn request(name: String, admin: bool, connection: &ConnectionArgs) -> Result<NewToken, Failure> {
    let namespaces = connection.namespaces.clone();
    match (admin, namespaces.is_empty()) {
        (false, true) => Err(Failure::usage("say what the token may see: --namespace NAME, or --admin for everything")),
        (true, false) => Err(Failure::usage("--admin sees every namespace: leave --namespace out")),
        _ => Ok(NewToken { name, admin, namespaces }),
    }
}

/// Creates a token in a data folder on this machine, without the network.
async fn create_in_data(data: PathBuf, request: NewToken, format: Format) -> Result<(), Failure> {
    if !data.join("lakeshore.db").exists() {
        // Right before the first `serve`, and a wrong folder otherwise: the token would be one that no server knows.
        note(&format!("{} is a new data folder; a server must be started with it to know this token", data.display()));
    }
    let created = tokio::task::spawn_blocking(move || create_token(&data, request)).await;
    let created = created.map_err(|e| Failure::Runtime { source: e.into() })?.map_err(|error| match error {
        TokenError::NoAnswer { .. } => words().unknown(&Chain(&error).to_string()),
        error => Failure::Token(error),
    })?;
    created.notices.iter().for_each(|notice| note(notice));
    let token = created.token.expose_secret();
    words().show(format, &json!({"id": created.id, "name": created.name, "token": token}), token)
}

async fn create(request: NewToken, session: &Session) -> Result<(), Failure> {
    let body = json!({"name": request.name, "admin": request.admin, "namespaces": request.namespaces});
    let fields = [("name", "--name"), ("namespaces", "--namespace")];
    let created = session.client.post(&["v1", "tokens"], &body).await.map_err(|failure| words().unanswered(failure.in_words_of(&fields)))?;
    let token = created.get("token").and_then(Value::as_str).ok_or_else(|| session.client.confused("a new token without its text"))?;
    words().show(session.format, &created, token)
}

fn words() -> Words {
    Words {
        list: "lakeshore tokens list",
        revoke: "lakeshore tokens revoke".to_owned(),
        shown: "the token is shown only now; keep it, for example as LAKESHORE_TOKEN".to_owned(),
    }
}
