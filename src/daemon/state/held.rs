//! What `hello` lists: the objects of this node that are ours, whether the control plane knows them or not. One whose data came back
//! from an older copy takes over those that it does not know, and by this list alone.

use serde_json::Value;

use super::item::{Item, Object, Phase};
use super::{DaemonState, Effect};
use crate::types::{InstanceName, KubeNamespace, LABEL_NAMESPACE, LABEL_PROVIDER, State};
use crate::wire::HeldItem;

/// Bytes of `hello` that the list may take: half of a text frame. An item has some 400, so that 1,300 fit: those that have not ended
/// first, and a node has a few hundred of these.
const MAX_HELD: usize = 512 << 10;

impl DaemonState {
    /// The list, most needed first, as far as it fits.
    pub(super) fn held(&self) -> Vec<HeldItem> {
        let install = self.install.as_deref();
        let mut seen: Vec<_> = self.objects.iter().filter(|(_, object)| install.is_none() || object.is_ours(install)).collect();
        // Of those that have ended the newest: the older ones were told long ago.
        seen.sort_by_key(|(_, object)| (object.observation.state == State::Stopped, std::cmp::Reverse(object.observation.finished_at)));
        let being_made = self.items.values().filter_map(|item| self.promised(item));
        let mut room = MAX_HELD;
        let fits = |item: &HeldItem| {
            let bytes = serde_json::to_string(item).map_or(usize::MAX, |text| text.len() + 1);
            room.checked_sub(bytes).map(|rest| room = rest).is_some()
        };
        let seen = seen.into_iter().filter_map(|((namespace, name), object)| object.held(namespace, name));
        being_made.chain(seen).take_while(fits).collect()
    }

    /// An object that was allowed to be made and has not been seen: its POST may be under way.
    fn promised(&self, item: &Item) -> Option<HeldItem> {
        let (Phase::Creating { rendered, .. } | Phase::ReadingBack { rendered, .. }) = &item.phase else { return None };
        if self.objects.contains_key(&(rendered.namespace.clone(), item.instance.clone())) {
            return None; // listed as what it is
        }
        let label = |key: &str| rendered.manifest.pointer("/metadata/labels")?.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(HeldItem {
            dispatch_id: item.dispatch.clone(),
            attempt: item.attempt,
            instance: item.instance.clone(),
            uid: None,
            install: self.install.clone(),
            namespace: Some(rendered.namespace.to_string()),
            caller_namespace: label(LABEL_NAMESPACE),
            provider: label(LABEL_PROVIDER),
            requested_by: Some(item.requested_by.clone()),
        })
    }

    /// Once all objects have been shown: dials again when `hello` went out before that, and one that has not ended was left out.
    pub(super) fn list_the_rest(&mut self, out: &mut Vec<Effect>) {
        if self.listed_all || self.session.is_none() || !self.is_synced() {
            return;
        }
        self.listed_all = true;
        let install = self.install.as_deref();
        let unknown = |(key, object): (&(KubeNamespace, InstanceName), &Object)| {
            object.is_ours(install) && object.dispatch.is_some() && object.observation.state != State::Stopped && !self.items.contains_key(&key.1)
        };
        if self.objects.iter().any(unknown) {
            out.push(Effect::Redial { why: "objects were found that hello did not list" });
        }
    }
}

impl Object {
    fn held(&self, namespace: &KubeNamespace, instance: &InstanceName) -> Option<HeldItem> {
        Some(HeldItem {
            dispatch_id: self.dispatch.clone()?,
            attempt: self.attempt?,
            instance: instance.clone(),
            uid: Some(self.uid.clone()),
            install: self.install.clone(),
            namespace: Some(namespace.to_string()),
            caller_namespace: self.caller_namespace.clone(),
            provider: self.provider.clone(),
            requested_by: Some(self.requested_by.clone()),
        })
    }
}
