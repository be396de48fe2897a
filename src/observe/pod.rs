//! A Pod's status as an observation (\[L\] S100–S106).
//!
//! Decided from phase, conditions and container statuses, never from an exit code alone: a container that was killed for its memory
//! may exit 0, and a code that the kubelet made up is not the script's.

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodStatus};

use crate::types::{Observation, Reason, State};

/// Name of the one container (\[L\] S76).
pub const CONTAINER: &str = "user";
/// How much earlier than the deletion a container must have ended to have ended by itself. Its end is told by the node's clock and the
/// deletion by the API server's, and both in whole seconds; NTP keeps clocks far closer than this.
const BEFORE: SignedDuration = SignedDuration::from_secs(5);
/// Longest message, in bytes: the cluster's words may be a whole traceback of an admission hook or runtime.
const MAX_MESSAGE: usize = 2_048;

/// Says what state a Pod is in and why, in the cluster's own words. `cancel`: a caller asked us to delete it.
pub fn pod(pod: &Pod, now: Timestamp, cancel: bool) -> Observation {
    let empty = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&empty);
    let user = user(status);
    let ended = user.and_then(terminated);
    let (state, reason, message) = match (deletion(pod), status.phase.as_deref()) {
        (Some(asked_at), phase) => {
            let (reason, message) = stopping(status, ended, phase, asked_at, cancel);
            (State::Stopping, reason, message)
        }
        (None, Some("Pending")) => {
            let (reason, message) = pending(pod, status, user);
            (State::Starting, reason, message)
        }
        (None, Some("Running")) => (State::Running, Reason::Running, user.and_then(waiting).map(|words| words.1).unwrap_or_default()),
        (None, Some("Succeeded" | "Failed")) => {
            let (reason, message) = outcome(status, ended);
            (State::Stopped, reason, message)
        }
        (None, phase) => {
            let reason = if status.reason.as_deref() == Some("NodeLost") { Reason::NodeLost } else { Reason::Other };
            let phase = phase.map_or_else(|| "the Pod has no phase yet".to_owned(), |phase| format!("the Pod's phase is {phase}"));
            (State::Unknown, reason, join(&[&phase, &words(status.reason.as_deref(), status.message.as_deref())]))
        }
    };
    let ran = ended.filter(|ended| ran(ended));
    let running = user.and_then(|user| user.state.as_ref()?.running.as_ref());
    let finished_at =
        ran.and_then(|ran| time(ran.finished_at.as_ref())).or_else(|| if state == State::Stopped { not_ready_since(status) } else { None });
    Observation {
        state,
        reason,
        message: cut(message),
        exit_code: ran.filter(|ran| !lost_sight(ran)).map(|ran| ran.exit_code),
        uid: pod.metadata.uid.clone(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()?.parse().ok()),
        created_at: time(pod.metadata.creation_timestamp.as_ref()),
        started_at: running.and_then(|running| time(running.started_at.as_ref())).or_else(|| time(ran?.started_at.as_ref())),
        finished_at,
        observed_at: now,
        has_log: running.is_some() || ran.is_some(),
    }
}

/// When the deletion was asked for: the deletion time stamp is that moment plus the grace period.
fn deletion(pod: &Pod) -> Option<Timestamp> {
    let due = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    Some(due.checked_sub(grace).unwrap_or(due))
}

/// A Pod under deletion: why it goes, or how it had ended before anybody deleted it.
fn stopping(
    status: &PodStatus,
    ended: Option<&ContainerStateTerminated>,
    phase: Option<&str>,
    asked_at: Timestamp,
    cancel: bool,
) -> (Reason, String) {
    let finished = matches!(phase, Some("Succeeded" | "Failed"));
    let before = ended.and_then(|ended| ended.finished_at.as_ref()).is_some_and(|at| asked_at.duration_since(at.0) >= BEFORE);
    if finished && before {
        return outcome(status, ended);
    }
    if cancel {
        return (Reason::DeletedByRequest, "the Pod is being deleted as asked".to_owned());
    }
    match disruption(status) {
        Some(disruption) => disruption,
        None => (Reason::DeletedByOther, "somebody other than nymph deleted the Pod; it is given its grace period to end".to_owned()),
    }
}

fn pending(pod: &Pod, status: &PodStatus, user: Option<&ContainerStatus>) -> (Reason, String) {
    if let Some(unscheduled) = condition(status, "PodScheduled").filter(|c| c.status == "False") {
        let reason = if unscheduled.reason.as_deref() == Some("Unschedulable") { Reason::Unschedulable } else { Reason::Scheduling };
        return (reason, unscheduled.message.clone().unwrap_or_default());
    }
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let waits = user.and_then(waiting).or_else(|| status.init_container_statuses.iter().flatten().find_map(waiting));
    match waits {
        Some((code, words)) => (waiting_reason(code), if matches!(code, "ContainerCreating" | "PodInitializing") { String::new() } else { words }),
        None if bound => (Reason::ContainerCreating, String::new()),
        None => (Reason::Scheduling, String::new()),
    }
}

/// **Source:** the `Err…` values of `pkg/kubelet/container/sync_result.go`, `pkg/kubelet/images/types.go` and
/// `pkg/kubelet/kuberuntime/kuberuntime_container.go` in Kubernetes.
fn waiting_reason(code: &str) -> Reason {
    match code {
        "ContainerCreating" | "PodInitializing" => Reason::ContainerCreating,
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "ImageInspectError" | "RegistryUnavailable" | "SignatureValidationFailed" => {
            Reason::ImagePull
        }
        "InvalidImageName" => Reason::InvalidImage,
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" | "PreStartHookError" | "PreCreateHookError" => {
            Reason::ConfigError
        }
        _ => Reason::Other,
    }
}

/// How a Pod in phase `Succeeded` or `Failed` ended.
fn outcome(status: &PodStatus, ended: Option<&ContainerStateTerminated>) -> (Reason, String) {
    let pods_words = || words(status.reason.as_deref(), status.message.as_deref());
    match status.reason.as_deref() {
        // Also a graceful shutdown of the node, for which the kubelet writes `Terminated` (and `NodeShutdown` before 1.22).
        Some("Evicted" | "Preempting" | "Terminated" | "NodeShutdown" | "Shutdown") => return (Reason::Evicted, pods_words()),
        Some("DeadlineExceeded") => return (Reason::Deadline, pods_words()),
        Some("NodeLost") => return (Reason::NodeLost, pods_words()),
        _ => {}
    }
    if let Some(killed) = out_of_memory(status) {
        return (Reason::OutOfMemory, killed);
    }
    // What ended by itself ended by itself, even when a disruption was under way.
    if !ended.is_some_and(|ended| ran(ended) && !lost_sight(ended))
        && let Some(disruption) = disruption(status)
    {
        return disruption;
    }
    match ended {
        Some(ended) if !ran(ended) => {
            let reason = if ended.reason.as_deref() == Some("ContainerStatusUnknown") { Reason::Other } else { Reason::ConfigError };
            (reason, join(&[&words(ended.reason.as_deref(), ended.message.as_deref()), &pods_words()]))
        }
        Some(ended) if lost_sight(ended) => {
            let told = words(ended.reason.as_deref(), ended.message.as_deref());
            (Reason::Other, join(&[&told, "the node's runtime lost sight of the container, and how it ended is not known", &pods_words()]))
        }
        Some(ended) if ended.exit_code == 0 => (Reason::Completed, ended.message.clone().unwrap_or_default()),
        Some(ended) => {
            let own = ended.reason.as_deref().filter(|reason| *reason != "Error");
            let mut text = words(own, ended.message.as_deref());
            if let Some(signal) = ended.signal.filter(|signal| *signal > 0) {
                let _ = write!(text, "{}killed by signal {signal}", if text.is_empty() { "" } else { "; " });
            }
            (Reason::ExitCode, join(&[&text, &pods_words()]))
        }
        None => {
            let phase = status.phase.as_deref().unwrap_or_default();
            (Reason::Other, join(&[&pods_words(), &format!("the Pod's phase is {phase}, and how its container ended is not told")]))
        }
    }
}

/// The kubelet's word that a container was killed for its memory, whatever its exit code and whichever container of the Pod.
fn out_of_memory(status: &PodStatus) -> Option<String> {
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let mut states = all.flat_map(|container| [&container.state, &container.last_state]).flatten();
    let killed = states.find_map(|state| state.terminated.as_ref().filter(|ended| ended.reason.as_deref() == Some("OOMKilled")))?;
    let told = words(killed.reason.as_deref(), killed.message.as_deref());
    Some(format!("{told}; a process used more memory than `resources.limits.memory` allows"))
}

/// A disruption that Kubernetes itself announced. **Source:** the reasons of `DisruptionTarget` in its page "Disruptions".
fn disruption(status: &PodStatus) -> Option<(Reason, String)> {
    let target = condition(status, "DisruptionTarget").filter(|c| c.status == "True")?;
    let reason = match target.reason.as_deref() {
        Some("DeletionByPodGC") => Reason::NodeLost,
        Some("EvictionByEvictionAPI" | "PreemptionByScheduler" | "TerminationByKubelet" | "DeletionByTaintManager") => Reason::Evicted,
        _ => return None,
    };
    Some((reason, words(target.reason.as_deref(), target.message.as_deref())))
}

fn user(status: &PodStatus) -> Option<&ContainerStatus> {
    status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER)
}

/// The state in which the container ended; `lastState` counts when the kubelet has already gone on from it.
fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    let of = |state: &'_ Option<ContainerState>| state.as_ref().is_some_and(|state| state.terminated.is_some());
    let state = if of(&container.state) { &container.state } else { &container.last_state };
    state.as_ref()?.terminated.as_ref()
}

/// Why the container waits: the kubelet's code, and its words with the code in front.
fn waiting(container: &ContainerStatus) -> Option<(&str, String)> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let code = waiting.reason.as_deref().unwrap_or_default();
    Some((code, words(waiting.reason.as_deref(), waiting.message.as_deref())))
}

/// Whether the container ever ran, so that code, times and log are its own. The kubelet invents a code (137) for a container that it
/// lost sight of, and the runtime one (128) for a command that it could not start.
fn ran(ended: &ContainerStateTerminated) -> bool {
    !matches!(ended.reason.as_deref(), Some("ContainerStatusUnknown" | "StartError" | "ContainerCannotRun"))
}

/// Whether the runtime made up the code of a container that ran: it found it gone when it came back, as after a power cut.
///
/// **Source:** `unknownExitCode` and `unknownExitReason` in `internal/cri/server` of containerd; an exit that it saw has another reason.
fn lost_sight(ended: &ContainerStateTerminated) -> bool {
    ended.reason.as_deref() == Some("Unknown") && ended.exit_code == 255
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// When an ended Pod without a container's word stopped being ready, which is when it ended.
fn not_ready_since(status: &PodStatus) -> Option<Timestamp> {
    let ready = ["DisruptionTarget", "Ready"].into_iter().find_map(|kind| condition(status, kind))?;
    time(ready.last_transition_time.as_ref())
}

/// A time that was really set: Go's zero time and the epoch stand for none.
fn time(time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>) -> Option<Timestamp> {
    time.map(|time| time.0).filter(|at| at.as_second() > 0)
}

fn words(reason: Option<&str>, message: Option<&str>) -> String {
    match (reason.unwrap_or_default().trim(), message.unwrap_or_default().trim()) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

fn join(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

fn cut(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
