//! `lakeshore launch`: start a script, show its output, end as it ended.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::exit;
use super::failure::Failure;
use super::fields;
use super::follow::{Patience, Screen, follow};
use super::instance::Instance;
use super::log_pump::LogPump;
use super::output::{self, Format};
use super::session::Session;
use super::state_pump::StatePump;
use super::terminal::note;
use crate::types::{ImageRef, NodeName, ResourceName};

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore launch py hello.py
  lakeshore launch py train.py --node node-2 --image python:3.13 --env EPOCHS=3 -- --rate 0.1
  echo 'print(6 * 7)' | lakeshore launch py -
  ID=$(lakeshore launch py long.py --detach); lakeshore logs -f \"$ID\"

The script's output goes to stdout, everything else to stderr. Exits with the script's exit code;
with 125 when there is none to show (it could not be started, or its outcome is not known); with
130 after Ctrl-C, which leaves the instance running.";

/// The control plane refuses a body over 2 MiB; no script that is longer could arrive.
const MAX_SCRIPT_BYTES: u64 = 2 << 20;
/// Before the one retry of a request that got no answer: a server that restarts is mostly back by then.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Following waits this long for a control plane that is away, and for the rest of the log of an instance that ended.
const PATIENCE: Patience = Patience { outage: Duration::from_secs(600), rest_of_log: Some(Duration::from_secs(60)) };

/// What to launch, and how to follow it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Mode whose defaults, and whose provider, are used
    #[arg(value_name = "MODE")]
    mode: ResourceName,
    /// Python script: a file, or - for stdin
    #[arg(value_name = "SCRIPT")]
    script: PathBuf,
    /// Arguments for the script, as its sys.argv[1:]
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
    /// Do not follow: print the instance id and return
    #[arg(short, long)]
    detach: bool,
    /// Node to run on
    #[arg(long, value_name = "NODE")]
    node: Option<NodeName>,
    /// Image to run in, instead of the mode's
    #[arg(long, value_name = "IMAGE")]
    image: Option<ImageRef>,
    /// Environment variable of the script; replaces the env of mode and provider as a whole. Repeatable
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Any other field of a launch; objects and lists as JSON: resources, tags, namespace (the Kubernetes one), workdir (host_path or none). Repeatable
    #[arg(short, long = "field", value_name = "NAME=VALUE")]
    fields: Vec<String>,
    /// Write control characters of the output to a terminal as they are
    #[arg(long)]
    raw: bool,
}

/// Launches, and answers with the exit code.
pub(super) async fn run(args: Args, session: &Session) -> Result<u8, Failure> {
    let script = read_script(&args.script)?;
    let body = body(&args, script)?;
    let launched = tokio::select! {
        launched = start(&args.mode, &body, session) => launched?,
        _ = tokio::signal::ctrl_c() => {
            note(&format!("interrupted before the control plane answered; `{}` shows whether it was launched", session.suggest("instances")));
            return Err(Failure::Interrupted);
        }
    };
    let instance = Instance::read(&session.client, launched.clone())?;
    if args.detach {
        match session.format {
            Format::Table => output::write(&format!("{}\n", instance.instance_id))?,
            Format::Json | Format::Yaml => output::object(session.format, &launched)?,
        }
        return Ok(0);
    }
    note(&format!("launched {} on provider {}", instance.instance_id, instance.provider_name));
    tokio::select! {
        code = attend(&instance, args.raw, session) => code,
        _ = tokio::signal::ctrl_c() => {
            let id = &instance.instance_id;
            let (again, stop) = (session.suggest(&format!("logs -f {id}")), session.suggest(&format!("stop {id}")));
            note(&format!("\ndetached: {id} goes on without you\n  follow it: {again}\n  stop it:   {stop}"));
            Err(Failure::Interrupted)
        }
    }
}

/// Finds the mode's provider and launches there.
async fn start(mode: &ResourceName, body: &Map<String, Value>, session: &Session) -> Result<Value, Failure> {
    let found = session.client.get(&session.path(&["modes", mode.as_str()]), &[]).await?;
    let provider = found.get("provider").and_then(Value::as_str).ok_or_else(|| session.client.confused("a mode without a provider"))?;
    let path = session.path(&["providers", provider, "launch"]);
    let (body, key) = (Value::Object(body.clone()), idempotency_key()?);
    let unsent = match session.client.launch(&path, &body, &key).await {
        Err(Failure::Unreachable { unsent, .. }) => unsent,
        Err(Failure::CutOff { .. }) => false,
        answered => return answered,
    };
    // The key makes this safe: had the first request arrived, its instance is what comes back.
    tokio::time::sleep(RETRY_AFTER).await;
    match session.client.launch(&path, &body, &key).await {
        Err(Failure::Unreachable { server, cause, unsent: again, .. }) if !(unsent && again) => Err(unanswered(&server, &cause, session)),
        Err(Failure::CutOff { server, cause }) => Err(unanswered(&server, &cause, session)),
        answered => answered,
    }
}

fn unanswered(server: &str, cause: &str, session: &Session) -> Failure {
    Failure::UnknownOutcome {
        message: format!("no answer from the control plane at {server} ({cause}): the script may have been launched"),
        cure: format!("`{}` shows whether it was", session.suggest("instances")),
    }
}

async fn attend(instance: &Instance, raw: bool, session: &Session) -> Result<u8, Failure> {
    let id = instance.instance_id.as_str();
    let path: Vec<String> = session.path(&["providers", &instance.provider_name, "instances", id]).into_iter().map(str::to_owned).collect();
    let state = StatePump { client: session.client.clone(), path: path.clone() };
    let log = LogPump { client: session.client.clone(), path: [path, vec!["logs".to_owned()]].concat(), offset: 0, follow: true };
    let mut screen = Screen::new(raw, true);
    let ending = follow(Some(state), log, PATIENCE, &mut screen).await?;
    let last = ending.instance.as_ref().unwrap_or(instance);
    if ending.log_missing {
        let again = session.suggest(&format!("logs -f {id} --offset {}", ending.bytes));
        screen.note(&format!("the rest of the output has not arrived; `{again}` waits for it"));
    } else if let Some(gap) = last.log_gap() {
        screen.note(&gap);
    }
    screen.note(&last.verdict());
    Ok(exit::of_script(last.exit_code))
}

/// The body of the launch.
fn body(args: &Args, script: String) -> Result<Map<String, Value>, Failure> {
    let mut body = fields::parse("--field", &args.fields)?;
    let env = fields::texts("--env", &args.env)?;
    let named = [
        ("script", "SCRIPT", Some(Value::from(script))),
        ("mode", "MODE", Some(Value::from(args.mode.as_str()))),
        ("args", "-- ARGS", (!args.args.is_empty()).then(|| Value::from(args.args.clone()))),
        ("node", "--node", args.node.as_ref().map(|node| Value::from(node.as_str()))),
        ("image", "--image", args.image.as_ref().map(|image| Value::from(image.as_str()))),
        ("env", "--env", (!env.is_empty()).then_some(Value::Object(env))),
    ];
    for (field, flag, value) in named {
        if value.is_some_and(|value| body.insert(field.to_owned(), value).is_some()) {
            return Err(Failure::usage(format!("--field {field} is given as well as {flag}: give one of them")));
        }
    }
    Ok(body)
}

/// Reads the script, which must be text that a program's argument can carry.
fn read_script(path: &Path) -> Result<String, Failure> {
    let name = if path == Path::new("-") { "from stdin".to_owned() } else { path.display().to_string() };
    let unreadable = |e: std::io::Error| Failure::usage(format!("cannot read the script {name}: {e}"));
    let mut bytes = Vec::new();
    // One byte more than is allowed shows that there is more, without reading all of a device.
    if path == Path::new("-") {
        std::io::stdin().lock().take(MAX_SCRIPT_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_SCRIPT_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    }
    check_script(&name, bytes)
}

fn check_script(name: &str, bytes: Vec<u8>) -> Result<String, Failure> {
    if bytes.len() as u64 > MAX_SCRIPT_BYTES {
        return Err(Failure::usage(format!("the script {name} is longer than {MAX_SCRIPT_BYTES} bytes, the most that can be sent")));
    }
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        return Err(Failure::usage(format!("the script {name} has a NUL at byte {at}; a script is UTF-8 text without NUL")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("the script {name} is not UTF-8 at byte {at}; a script is UTF-8 text without NUL"))
    })
}

/// 128 bits by chance, in hex.
fn idempotency_key() -> Result<String, Failure> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).map_err(|e| Failure::usage(format!("the system gives no random bytes: {e}")))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utf8_without_nul_is_a_script() {
        assert_eq!(check_script("x", "print('ü')".into()).expect("is text"), "print('ü')");
        let fault = |bytes: &[u8]| check_script("x.py", bytes.to_vec()).expect_err("is refused").to_string();
        assert_eq!(fault(b"ab\0c"), "the script x.py has a NUL at byte 2; a script is UTF-8 text without NUL");
        assert_eq!(fault(b"abc\xff"), "the script x.py is not UTF-8 at byte 3; a script is UTF-8 text without NUL");
        assert!(fault(&vec![b'a'; (2 << 20) + 1]).contains("longer than 2097152 bytes"));
    }

    #[test]
    fn keys_differ() {
        let keys = [idempotency_key(), idempotency_key()].map(|key| key.expect("the system has randomness"));
        assert_ne!(keys[0], keys[1]);
        assert_eq!(keys[0].len(), 32);
    }
}
